"""Secure aggregation: the server learns the sum of vehicles' vectors, and no single vector.

Summed in secret are the replies to a round, and the counts and sums from which a field is learned.
Two things still reach the server in the clear: n_k, when a vehicle enrols, and every vehicle's
error sums, when a model is judged; the records of a run and the choice of its best model rest on
them. All vehicles of a sum learn each other's names.

Pairwise and own masks, with drop-outs made good by Shamir shares (Bonawitz et al., CCS 2017), over
X25519, HKDF-SHA256 and ChaCha20 of the `cryptography` package. The protocol is ours, has been
tested but not audited, and protects against a server that follows it and is curious;
docs/privacy.md says what that means.

Why not Flower's SecAgg+ workflow (flwr 1.41), read before this was written:

- It runs only on a `LegacyContext` with a legacy Strategy, ClientManager and FitRes; a ServerApp
  with a loop of its own on the Grid cannot call it.
- Its vehicle-side mod masks the arrays of a FitRes and leaves `num_examples` and metrics beside
  them in the clear, in every round and whatever a deployment would rather keep to itself.
- One factor for a whole vehicle: FedNova's and FedEL's vectors, with other weights in some places,
  would have to be smuggled in as parameters.
- Masks come from NumPy's Mersenne twister, seeded with 32 bits folded from the key, which is no
  cryptographic generator.
- A vehicle answers a request for both shares of another one, which unmasks it.
- A weight beyond its limit is only logged, and what is clipped is not counted.
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
