"""A method is a list of local rules and one server rule, where they go together."""

from dataclasses import dataclass, fields

from fedwatt.errors import SettingError
from fedwatt.methods.dynamic import Dynamic, DynamicServer
from fedwatt.methods.fractional import Fractional
from fedwatt.methods.momentum import Momentum
from fedwatt.methods.rule import LocalRule
from fedwatt.methods.scaffold import ControlVariates, Scaffold
from fedwatt.methods.server import Average, ServerRule

TOGETHER: tuple[tuple[type[LocalRule], type[ServerRule]], ...] = (
    (ControlVariates, Scaffold),
    (Dynamic, DynamicServer),
)
"""Halves of one mechanism: neither means anything without the other."""


@dataclass(frozen=True)
class Method:
    """What vehicles do between two broadcasts, and how their replies become the next model."""

    name: str
    local: tuple[LocalRule, ...] = ()
    server: ServerRule = Average()

    def __post_init__(self) -> None:
        reason = self._why_not()
        if reason:
            raise SettingError(f"Method '{self.name}': {reason}")

    @property
    def composition(self) -> str:
        """The rules in words, as in "RoughnessProximal + Fractional → Average"."""
        local = " + ".join(type(rule).__name__ for rule in self.local) or "plain SGD"
        return f"{local} → {type(self.server).__name__}"

    @property
    def settings(self) -> dict[str, object]:
        """Every hyperparameter of the rules by its name."""
        rules: tuple[LocalRule | ServerRule, ...] = (*self.local, self.server)
        return {field.name: getattr(rule, field.name) for rule in rules for field in fields(rule)}

    def _why_not(self) -> str:
        """Why these rules cannot work together; empty if they can."""
        kinds = [type(rule) for rule in self.local]
        for kind in kinds:
            if kinds.count(kind) > 1:
                return f"{kind.__name__} is there twice; give each rule once."
        for local, server in TOGETHER:
            if (local in kinds) != isinstance(self.server, server):
                return (
                    f"{local.__name__} in the vehicles and {server.__name__} on the server are "
                    "halves of one mechanism; use both or neither."
                )
        if self.server.normalises:
            for rule in self.local:
                if not rule.linear:
                    return (
                        f"FedNova divides by how much gradient the local steps add up to, and "
                        f"{type(rule).__name__} is not linear in the gradients. Use another server."
                    )
            telling = [k.__name__ for k in kinds if k.accumulation is not LocalRule.accumulation]
            if len(telling) > 1:
                return (
                    f"{' and '.join(telling)} together have no closed form of FedNova's "
                    "normalisation. Use one of them or another server."
                )
        if Momentum in kinds and Fractional in kinds:
            return "Fractional scales single steps and Momentum mixes them; use one of the two."
        return ""
