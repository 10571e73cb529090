from trainer.protocol.signature import is_signed, sign


def test_a_signature_is_of_the_secret_and_of_every_byte() -> None:
    signature = sign(b"secret", b"report", b"body")
    assert is_signed(signature, b"secret", b"report", b"body")
    for secret, *parts in ((b"Secret", b"report", b"body"), (b"secret", b"reportbody"), (b"secret", b"reply", b"body")):
        assert not is_signed(signature, secret, *parts)
    for other in (None, "", "x", signature.upper(), "\udcff", "é"):
        assert not is_signed(other, b"secret", b"report", b"body")
    assert is_signed(None, b"", b"report", b"body")
    assert is_signed("", b"", b"report", b"body")
    assert not is_signed(signature, b"", b"report", b"body")
