"""Secure aggregation: the server learns the sum of vehicles' vectors, and no single vector.

Its sums are the updates of a round with their weights, the errors of a model, and the counts and
sums from which elevation maps and routes are learned. All vehicles of a sum learn each other's
names.

Pairwise and own masks, with drop-outs made good by Shamir shares, signed keys and an agreement on
who survived (Bonawitz et al., CCS 2017), on the graph of Bell et al. (CCS 2020), over X25519,
HKDF-SHA256 and ChaCha20 of the `cryptography` package; our own code, tested and not audited. Single
vectors are hidden from a malicious server as well; sums and their differences are not
(docs/privacy.md).
"""

from fedwatt.errors import SettingError

try:
    import cryptography  # noqa: F401
except ImportError as error:
    raise SettingError(
        "Secure aggregation needs the cryptography package: pip install 'fedwatt[privacy]'."
    ) from error
