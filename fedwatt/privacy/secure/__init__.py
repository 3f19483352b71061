"""Secure aggregation: the server learns the sum of vehicles' vectors, and no single vector.

Summed in secret are the replies to a round with their weights, the error sums of a model, and the
counts and sums from which a field is learned. All vehicles of a sum learn each other's names.

Pairwise and own masks, with drop-outs made good by Shamir shares (Bonawitz et al., CCS 2017), over
X25519, HKDF-SHA256 and ChaCha20 of the `cryptography` package. The protocol is ours, has been
tested but not audited, and protects against a server that follows it and is curious;
docs/privacy.md says what that means, and why Flower's SecAgg+ workflow was not used.
"""

from fedwatt.errors import SettingError

try:
    import cryptography  # noqa: F401
except ImportError as error:
    raise SettingError(
        "Secure aggregation needs the cryptography package: pip install 'fedwatt[privacy]'."
    ) from error
