"""Which language is this word? A small text model with its own data: an example of a workload file.

The words are the names of the numbers 1 to 99 in four languages, spelt out by their rules below.
"""

import keras
import tensorflow as tf

LANGUAGES = ("english", "german", "italian", "spanish")
LETTERS = " abcdefghijklmnopqrstuvwxyz'"
LENGTH = 24

ONES = {
    "english": """one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
        seventeen eighteen nineteen""",
    "german": """eins zwei drei vier fuenf sechs sieben acht neun zehn elf zwoelf dreizehn vierzehn fuenfzehn sechzehn
        siebzehn achtzehn neunzehn""",
    "italian": """uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici
        sedici diciassette diciotto diciannove""",
    "spanish": """uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciseis
        diecisiete dieciocho diecinueve""",
}
TENS = {
    "english": "twenty thirty forty fifty sixty seventy eighty ninety",
    "german": "zwanzig dreissig vierzig fuenfzig sechzig siebzig achtzig neunzig",
    "italian": "venti trenta quaranta cinquanta sessanta settanta ottanta novanta",
    "spanish": "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa",
}


def words(language):
    ones = ONES[language].split()
    compound = {
        "english": lambda ten, one: f"{ten} {one}",
        "german": lambda ten, one: f"{'ein' if one == 'eins' else one}und{ten}",
        "italian": lambda ten, one: (ten[:-1] if one in ("uno", "otto") else ten) + one,
        "spanish": lambda ten, one: f"{ten} y {one}",
    }[language]
    return ones + [word for ten in TENS[language].split() for word in (ten, *(compound(ten, o) for o in ones[:9]))]


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
    examples = [(word, label) for label, language in enumerate(LANGUAGES) for word in words(language)]
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
