"""A method is a list of local rules, perhaps a defence, and one server rule that go together."""

from dataclasses import dataclass, fields

from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.methods.attack import Fault
from fedwatt.methods.contrastive import Contrastive
from fedwatt.methods.defence import Defence
from fedwatt.methods.dynamic import Dynamic, DynamicServer
from fedwatt.methods.elastic import Elastic, ElasticServer
from fedwatt.methods.fractional import Fractional
from fedwatt.methods.momentum import Momentum
from fedwatt.methods.private import OUTSIDE
from fedwatt.methods.rule import LocalRule, Rows
from fedwatt.methods.scaffold import ControlVariates, Scaffold
from fedwatt.methods.server import Average, Replies, ServerRule
from fedwatt.models import Model

TOGETHER: tuple[tuple[type[LocalRule], type[ServerRule]], ...] = (
    (ControlVariates, Scaffold),
    (Dynamic, DynamicServer),
    (Elastic, ElasticServer),
)
"""Halves of one mechanism: neither means anything without the other."""


@dataclass(frozen=True)
class Method:
    """What vehicles do between two broadcasts, and how their replies become the next model."""

    name: str
    local: tuple[LocalRule, ...] = ()
    server: ServerRule = Average()
    defence: Defence | None = None

    def __post_init__(self) -> None:
        reason = self._why_not()
        if reason:
            raise SettingError(f"Method '{self.name}': {reason}")

    @property
    def composition(self) -> str:
        """The rules in words, as in "RoughnessProximal + Fractional → Krum → Average"."""
        local = " + ".join(type(rule).__name__ for rule in self.local) or "plain SGD"
        behind = [self.server] if self.defence is None else [self.defence, self.server]
        return " → ".join([local, *(type(rule).__name__ for rule in behind)])

    @property
    def rules(self) -> tuple[LocalRule | Defence | ServerRule, ...]:
        """All of them, in the order in which a round meets them."""
        defence = () if self.defence is None else (self.defence,)
        return (*self.local, *defence, self.server)

    @property
    def settings(self) -> dict[str, object]:
        """Every hyperparameter of the rules by its name."""
        return {
            field.name: getattr(rule, field.name) for rule in self.rules for field in fields(rule)
        }

    @property
    def replies_needed(self) -> int:
        """A round with fewer replies makes no model."""
        return 1 if self.defence is None else self.defence.replies_needed

    def adapted(self, model: Model) -> Model:
        """The model as the local rules need it, perhaps with more heads."""
        for rule in self.local:
            model = rule.adapt(model)
        return model

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """(server state, w_{t+1} [D]) from w_t [D] and `replies_needed` replies or more."""
        screened = replies if self.defence is None else self.defence.screen(replies)
        return self.server.update(state, weights, screened)

    def _why_not(self) -> str:
        """Why these rules cannot work together; empty if they can."""
        kinds = [type(rule) for rule in self.local]
        for kind in kinds:
            if kinds.count(kind) > 1:
                return f"{kind.__name__} is there twice; give each rule once."
        if self.server.only_deltas:
            for kind in kinds:
                if kind.hands_up:
                    more = " and ".join(kind.hands_up)
                    return f"{kind.__name__} hands up {more} besides Δ_k, but {OUTSIDE}."
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
        two = [r for r in self.local if isinstance(r, ControlVariates) and r.option == 2]
        if self.server.normalises or two:
            telling = [k.__name__ for k in kinds if k.accumulation is not LocalRule.accumulation]
            if len(telling) > 1:
                whose = "FedNova" if self.server.normalises else "SCAFFOLD's option 2"
                return (
                    f"{whose} divides by how much gradient the local steps add up to, which has no "
                    f"closed form for {' and '.join(telling)} together. Use one of them."
                )
        if Momentum in kinds and Fractional in kinds:
            return "Fractional scales single steps and Momentum mixes them; use one of the two."
        if Elastic in kinds and Contrastive in kinds:
            return (
                "Contrastive compares representations of the whole model, and Elastic trains a "
                "part that ends before them; use one of the two."
            )
        if sum(issubclass(kind, Fault) for kind in kinds) > 1:
            return "a vehicle has one fault at a time; give one of them."
        if self.defence is not None and not self.server.averages:
            return (
                f"{type(self.defence).__name__} screens displacements, and "
                f"{type(self.server).__name__} takes in more than their mean, which would reach it "
                "unscreened. Use an averaging server such as 'average' or 'adam'."
            )
        return ""
