"""A method is a list of local rules and one server rule."""

from dataclasses import dataclass, fields

from fedwatt.errors import SettingError
from fedwatt.methods.rule import LocalRule
from fedwatt.methods.server import Average, ServerRule


@dataclass(frozen=True)
class Method:
    """What vehicles do between two broadcasts, and how their replies become the next model."""

    name: str
    local: tuple[LocalRule, ...] = ()
    server: ServerRule = Average()

    def __post_init__(self) -> None:
        kinds = [type(rule).__name__ for rule in self.local]
        repeated = sorted({kind for kind in kinds if kinds.count(kind) > 1})
        if repeated:
            raise SettingError(
                f"Method '{self.name}' has {repeated[0]} twice; give each rule once."
            )

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
