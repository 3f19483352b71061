"""A real fleet on Flower: the same methods, with the vehicles somewhere else.

    messages       what goes over the air, declared field by field
    vehicle        a vehicle: its folder, its memory, its answers
    remote_fleet   the server: asks vehicles instead of simulating them
    flower         all that is used of Flower beyond its public interface, patches included
    bounds, door   how large messages may be, checked before they are read
    node, superlink, processes, keys, commands, control    Flower's processes, keys and commands

Flower carries messages, keeps sessions and checks keys. What a vehicle does with a model and what
the server does with replies is `fedwatt.federation` and `fedwatt.methods`, as in a simulation.
"""

from importlib.util import find_spec

from fedwatt.errors import RunError


def need_flower() -> None:
    """Refuse to go on without the packages of the extra `deploy`."""
    for package in ("flwr", "cryptography"):
        if find_spec(package) is None:
            raise RunError(f"Deployment needs {package}: pip install 'fedwatt[deploy]'.")
