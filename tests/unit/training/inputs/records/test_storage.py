"""Errors of buckets."""

from __future__ import annotations

import pytest
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training.inputs.records import storage

HTTP = "Error executing an HTTP request: HTTP response code {} with body '{}'\n\t when reading gs://mine/x"
"""As TensorFlow 2.21 writes it."""
BODY = '{{"error": {{"code": {}, "message": "{}", "errors": [{{"message": "{}", "reason": "required"}}]}}}}'
MISSING, ANONYMOUS = (
    "The specified bucket does not exist.",
    "Anonymous caller does not have storage.objects.list access",
)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            tf.errors.NotFoundError(None, None, HTTP.format(404, BODY.format(404, MISSING, MISSING))),
            "The specified bucket does not exist; check the names of bucket and file",
        ),
        (
            tf.errors.PermissionDeniedError(None, None, HTTP.format(401, BODY.format(401, ANONYMOUS, ""))),
            f"{ANONYMOUS}; give the tasks credentials that may read it (GOOGLE_APPLICATION_CREDENTIALS), or make it "
            "public",
        ),
        (
            tf.errors.FailedPreconditionError(None, None, "HTTP request: libcurl code 6 meaning\n'Could not resolve'"),
            "HTTP request: libcurl code 6 meaning 'Could not resolve'; check that this task has a way to it, such as a "
            "proxy in HTTPS_PROXY, or kubernetes.egress",
        ),
        (tf.errors.InternalError(None, None, "unknown"), "unknown"),
    ],
)
def test_an_error_of_a_bucket_has_its_fix(error: tf.errors.OpError, message: str) -> None:
    with pytest.raises(UserError) as caught, storage._reading("gs://mine/x"):
        raise error
    assert str(caught.value) == f"gs://mine/x: cannot be read: {message}"
