"""A trained model from elsewhere: the GRU encoder and decoder of g2p_en 2.1.0, spelling to phonemes.

Park and Kim, https://github.com/Kyubyong/g2p. The package brings its weights, in PyTorch's layout, and its own
inference in NumPy, which is the reference here.
"""

import types
import warnings

import numpy as np
import pytest

import elman
from elman.interop.torch import from_torch

# fmt: off
WORDS = [
    "activationist", "elman", "lyapunov", "jacobian", "keras", "numba", "backpropagation", "doomscrolling",
    "cryptocurrency", "hangry", "brexit", "staycation", "crowdfunding", "photobomb", "vaping", "emoji",
    "smartwatch", "deepfake", "ransomware", "chatbot", "freemium", "phablet", "vlogger", "glamping", "bromance",
    "mansplaining", "sharenting", "twerking", "upcycling", "flexitarian", "microplastics", "biohacking",
    "geocaching", "kombucha", "edamame", "umami", "hygge", "ikigai", "kintsugi", "tsundoku", "quokka", "axolotl",
    "nomophobia", "paywalled", "subtweet", "metaverse", "exoplanet", "sriracha", "cosplay", "netizen",
]
# fmt: on
"""Coined and borrowed words that a pronouncing dictionary lacks."""

START, END, LONGEST = 2, 3, 20


@pytest.fixture(scope="module")
def package():
    """The package's own model, without the tagger and the dictionary that it would fetch from the net."""
    nltk = pytest.importorskip("nltk")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(nltk.data, "find", lambda *_, **__: None)
        # escapes in its strings
        warnings.simplefilter("ignore")
        module = pytest.importorskip("g2p_en.g2p")
        patch.setattr(module, "cmudict", types.SimpleNamespace(dict=dict))
        return module.G2p()


def gru(package, part, order=(0, 1, 2), dtype=None):
    """The encoder or decoder as a layer; ``order`` permutes the gates."""
    weights = {
        f"{kind}_{side}_l0": getattr(package, f"{part}_{kind[0]}_{side}")
        for kind in ("weight", "bias")
        for side in ("ih", "hh")
    }
    weights = {name: np.concatenate([np.split(w, 3)[i] for i in order]) for name, w in weights.items()}
    return from_torch(weights, dtype=dtype)


@pytest.fixture(scope="module")
def layers(package):
    return gru(package, "enc"), gru(package, "dec")


def phonemes(package, encoder, decoder, word):
    """Greedy decoding, one phoneme a step; also the smallest lead of a chosen phoneme over the next best."""
    _, h = encoder(package.encode(word)[0])
    step, symbol, out, lead = decoder.stepper(h0=h[None]), START, [], np.inf
    while len(out) < LONGEST:
        logits = package.fc_w @ step(package.dec_emb[symbol]) + package.fc_b
        second, first = np.sort(logits)[-2:]
        symbol, lead = int(logits.argmax()), min(lead, first - second)
        if symbol == END:
            break
        out.append(package.phonemes[symbol])
    return out, lead


def test_there_are_fifty_words():
    assert len(set(WORDS)) == 50


def test_the_layers_are_read_from_the_shapes(layers):
    for layer in layers:
        assert type(layer) is elman.GRU
        assert (layer.input_size, layer.hidden_size, layer.dtype) == (256, 256, np.float32)


@pytest.mark.parametrize("word", WORDS)
def test_phonemes_are_those_of_the_package(word, package, layers):
    got, lead = phonemes(package, *layers, word)
    assert got == package.predict(word)
    # far from a tie that rounding could turn
    assert lead > 1e-3


@pytest.mark.parametrize(
    ("word", "expected"),
    [("activationist", "AE2 K T IH0 V EY1 SH AH0 N IH0 S T"), ("elman", "EH1 L M AH0 N")],
)
def test_two_words_by_heart(word, expected, package, layers):
    assert " ".join(phonemes(package, *layers, word)[0]) == expected


@pytest.mark.parametrize("part", ["enc", "dec"])
def test_states_are_those_of_the_package(part, package):
    """In float64, from the same numbers and a random state."""
    names = ("w_ih", "w_hh", "b_ih", "b_hh")
    weights = [getattr(package, f"{part}_{name}").astype(np.float64) for name in names]
    x, h = (np.random.default_rng(i).standard_normal((12, 256)) for i in range(2))
    output, _ = gru(package, part, dtype="float64")(x, h[:1])
    h = h[:1]
    for t in range(12):
        h = package.grucell(x[t : t + 1], h, *weights)
        np.testing.assert_allclose(output[t], h[0], rtol=0, atol=1e-12)


def test_all_words_in_one_call(package, layers):
    """Words of different lengths side by side: the same bits as one by one."""
    encoder, _ = layers
    sequences = [package.encode(word)[0] for word in WORDS]
    lengths = [len(x) for x in sequences]
    x = np.full((max(lengths), len(WORDS), 256), np.nan, np.float32)
    for i, sequence in enumerate(sequences):
        x[: len(sequence), i] = sequence
    _, hn = encoder(x, lengths=lengths)
    for i, sequence in enumerate(sequences):
        np.testing.assert_array_equal(hn[:, i], encoder(sequence)[1])


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 1, 0)])
def test_a_swapped_gate_spells_nothing(order, package, layers):
    swapped = gru(package, "enc", order), gru(package, "dec", order)
    right = [phonemes(package, *swapped, word)[0] == package.predict(word) for word in WORDS[:10]]
    assert sum(right) == 0
