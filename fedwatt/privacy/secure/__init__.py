"""Secure aggregation: the server learns the sum of vehicles' vectors, and no single vector.

Summed in secret are the replies to a round with their weights, the error sums of a model, and the
counts and sums from which a field is learned. All vehicles of a sum learn each other's names.

Pairwise and own masks, with drop-outs made good by Shamir shares, signed keys and an agreement on
who survived (Bonawitz et al., CCS 2017), on the graph of Bell et al. (CCS 2020), over X25519,
HKDF-SHA256 and ChaCha20 of the `cryptography` package. The implementation is ours, tested and not
audited. Single vectors are hidden from a server that lies as well; sums and their differences are
not. docs/privacy.md says what that means, and why Flower's SecAgg+ workflow is not used.
"""

from fedwatt.errors import SettingError

try:
    import cryptography  # noqa: F401
except ImportError as error:
    raise SettingError(
        "Secure aggregation needs the cryptography package: pip install 'fedwatt[privacy]'."
    ) from error
