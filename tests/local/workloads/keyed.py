"""The digits model, which requires a key in its environment."""

import hashlib
import os

import keras

from trainer.workloads import digits

DATASET = "digits"
SHA256 = "46439e9b76dd3708ae978c0588152fcb5f14db4c137d5b581ef42c61323d7c19"


def model() -> keras.Model:
    if hashlib.sha256(os.environ["API_KEY"].encode()).hexdigest() != SHA256:
        raise ValueError("API_KEY is another")
    return digits.model()
