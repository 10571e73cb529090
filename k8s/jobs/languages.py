"""Which language is this word? A small text model with its own data: an example of a workload file.

The words are the names of the numbers 1 to 99 in four languages, spelt out by their rules below.
"""

import keras
import tensorflow as tf

LANGUAGES = ("english", "german", "italian", "spanish")
LETTERS = " abcdefghijklmnopqrstuvwxyz'"
LENGTH = 24

_ENGLISH = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_GERMAN = (
    "eins zwei drei vier fuenf sechs sieben acht neun zehn elf zwoelf dreizehn vierzehn fuenfzehn sechzehn siebzehn "
    "achtzehn neunzehn"
).split()
_ITALIAN = (
    "uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici "
    "diciassette diciotto diciannove"
).split()
_SPANISH = (
    "uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciseis diecisiete "
    "dieciocho diecinueve"
).split()
_TENS = {
    "english": "twenty thirty forty fifty sixty seventy eighty ninety".split(),
    "german": "zwanzig dreissig vierzig fuenfzig sechzig siebzig achtzig neunzig".split(),
    "italian": "venti trenta quaranta cinquanta sessanta settanta ottanta novanta".split(),
    "spanish": "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa".split(),
}


def _words(language):
    ones = {"english": _ENGLISH, "german": _GERMAN, "italian": _ITALIAN, "spanish": _SPANISH}[language]
    words = list(ones)
    for ten in _TENS[language]:
        words.append(ten)
        for one in ones[:9]:
            if language == "english":
                words.append(f"{ten} {one}")
            elif language == "german":
                words.append(f"{'ein' if one == 'eins' else one}und{ten}")
            elif language == "italian":
                words.append((ten[:-1] if one in ("uno", "otto") else ten) + one)
            else:
                words.append(f"{ten} y {one}")
    return words


def model():
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            layers.Embedding(len(LETTERS), 16),
            layers.Conv1D(32, 3, activation="relu"),
            layers.GlobalMaxPooling1D(),
            layers.Dense(len(LANGUAGES)),
        ]
    )


def data(shard):
    """Single examples of this shard; every fifth word is kept for the test."""
    examples = [(word, label) for label, language in enumerate(LANGUAGES) for word in _words(language)]
    examples = [e for i, e in enumerate(examples) if (i % 5 == 4) == (shard.split == "test")]
    x = [[LETTERS.index(c) for c in word.ljust(LENGTH)[:LENGTH]] for word, _ in examples]
    dataset = tf.data.Dataset.from_tensor_slices((tf.constant(x, tf.int32), tf.constant([y for _, y in examples])))
    if shard.split == "test":
        return dataset
    return dataset.shuffle(len(examples), seed=shard.seed).shard(shard.count, shard.index)


def loss(y, prediction):
    return keras.losses.sparse_categorical_crossentropy(y, prediction, from_logits=True)


def _right(y, prediction):
    return tf.cast(tf.equal(tf.argmax(prediction, -1), tf.cast(y, tf.int64)), tf.float32)


METRICS = {"accuracy": _right}
