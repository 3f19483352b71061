"""Secure aggregation: the server learns the sum of vehicles' vectors, and no single vector.

Summed in secret are the replies to a round, and the counts and sums from which a field is learned.
Two things still reach the server in the clear: n_k, when a vehicle enrols, and every vehicle's
error sums, when a model is judged; the records of a run and the choice of its best model rest on
them. All vehicles of a sum learn each other's names.

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

from fedwatt.privacy.fixed_point import Layout
from fedwatt.privacy.secure.compose import secure_fault
from fedwatt.privacy.secure.rehearsal import rehearse
from fedwatt.privacy.secure_settings import SecureSettings

__all__ = ["Layout", "SecureSettings", "rehearse", "secure_fault"]
