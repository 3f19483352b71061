"""Learn the shared field where only totals over vehicles can be seen.

1. Vehicles say which nodes of the service area they drive; nodes with fewer than k vehicles are
   left out, and the rest is counted again, until nothing more is left out.
2. Vehicles hand up sums over these nodes; the server solves for the field.
3. On request 2 is repeated with residuals of a model that knows the field.
4. Vehicles evaluate fields of the last sums with other priors, and of longer segments, by sums over
   their validation trips (`choose`).

The server loop is the same for a simulation and for a real fleet; what differs is `Totals`. Whoever
drops out is asked no more. The nodes that k vehicles share only get fewer when one of them goes, so
counting goes on from where it was and still ends at the set that the rest would have found alone.

With noise (`noise`) vehicles are asked for bounded counts, once, and for clipped sums; the server
adds the noise to the totals before it makes anything of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedwatt.elevation.agreed import Pairs, pairs_of_a_node
from fedwatt.elevation.choose import Verdict, learn_with_prior, solved
from fedwatt.elevation.elevation_map import Field, empty_field
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.learn import Share
from fedwatt.elevation.noise import (
    Draws,
    PairSums,
    field_of_noise,
    seeded,
    surely_driven,
    with_noise,
)
from fedwatt.elevation.plausible import (
    refuse_impossible_counts,
    refuse_impossible_field,
    refuse_impossible_pair_sums,
    refuse_impossible_sums,
)
from fedwatt.elevation.question import Question, unpacked
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.statistics import NOTHING, Contribution
from fedwatt.elevation.survey import Survey
from fedwatt.errors import RunError, SettingError
from fedwatt.metrics.sums import (
    MOST_WORDS,
    AddUp,
    Total,
    in_process,
    refuse_long,
    words_of,
)
from fedwatt.metrics.sums import Contribution as SumValues
from fedwatt.telemetry.trip import IntArray

MOST_PAIRS = 1000
"""Of one node; beyond, segments reach so far that no message could hold their pairs."""


Totals = Callable[[Question, frozenset[str]], Total]
"""The totals of a question over the vehicles named, and whose answers are in them.

Where too few are left to make a total, it raises: a field with nothing in it is no answer to that.
"""


@dataclass(frozen=True, eq=False)
class SharedField:
    """The server's result: the published map.

    `driven` nodes of the area were driven by anybody (0 with noise, which hides it); `contributors`
    are all whose sums the field rests on, also those that dropped out later; `nothing` says why no
    node is published, and is empty where some are.
    """

    field: Field
    sums: Contribution
    driven: int
    contributors: frozenset[str]
    nothing: str = ""


def share_by(add_up: AddUp) -> Share:
    """Return builds the shared field as an exchange under masks does, with totals by `add_up`."""

    def share(
        surveys: Sequence[Survey], grid: Grid, settings: ElevationSettings
    ) -> tuple[Field, Contribution]:
        vehicles = {f"{number}": one for number, one in enumerate(surveys)}
        totals = in_process(add_up, vehicles)
        found = learn_from_totals(totals, frozenset(vehicles), grid, settings)
        return found.field, found.sums

    return share


def refuse_unmaskable(settings: ElevationSettings) -> None:
    """Raise if hills cannot be learned under masks with these settings."""
    if not settings.area:
        raise SettingError(
            "With secure.enabled vehicles learn hills under masks, over all nodes of a service "
            "area, so that no message shows where its vehicle was. Say where the fleet drives, in "
            "degrees: elevation.area = [SOUTH, NORTH, WEST, EAST], such as [42.2, 42.35, -83.85, "
            "-83.65]."
        )
    pairs = pairs_of_a_node(Grid(cell_m=settings.cell_m), settings.segment_s)
    if pairs > MOST_PAIRS:
        raise SettingError(
            f"elevation.segment_s = {settings.segment_s} is too long for elevation.cell_m = "
            f"{settings.cell_m:g} under masks: every node would make {pairs:,} pairs. Choose "
            "shorter segments or a larger cell_m."
        )


def learn_from_totals(
    totals: Totals,
    vehicles: frozenset[str],
    grid: Grid,
    settings: ElevationSettings,
    draws: Draws | None = None,
) -> SharedField:
    """Return the field of the nodes that at least k of the vehicles drive; empty where there is
    none.

    It is empty only where a whole count says so, or where there are fewer than k vehicles at all.
    Too few answers are a RunError.

    Noise, where there is any, is from `draws`; None: as `settings.noise_seed` has it.
    """
    learning = _Learning(totals, grid, settings, vehicles, settings.service_area.nodes(grid))
    try:
        if settings.noise_multiplier:
            return _learn_with_noise(learning, draws or seeded(settings.noise_seed))
        return _learn_exactly(learning)
    except _NothingShared as why:
        return SharedField(empty_field(grid), NOTHING, learning.driven, frozenset(), str(why))


def _learn_exactly(learning: "_Learning") -> SharedField:
    """Return the shared field from totals as they are."""

    def exchange(field: Field) -> Contribution:
        try:
            sums, pairs = learning.sums_for(field)
        except _NothingShared:
            if not learning.segment_s:
                raise
            return NOTHING  # of longer segments, which are then not taken
        learning.contributors |= learning.present
        refuse_impossible_field(solved(learning.grid, sums, field.prior), pairs)
        return sums

    learning.count()
    field, sums = learn_with_prior(exchange, learning.evaluate, learning.grid, learning.settings)
    return SharedField(field, sums, learning.driven, learning.contributors)


def _learn_with_noise(learning: "_Learning", draws: Draws) -> SharedField:
    """Return the shared field where the server adds noise to every total before it is used."""
    grid = learning.grid
    settings = learning.settings
    field = empty_field(grid)
    total = learning.total(learning.question(None))
    nodes, counts = surely_driven(total["vehicles"], learning.nodes, settings, draws)
    learning.nodes = nodes
    if not len(nodes):
        raise _NothingShared(
            f"no node surely has {settings.minimum_vehicles} vehicles, with the noise on counts"
        )
    for exchange in range(1 + settings.refreshes):
        question = learning.question(field)
        total = learning.total(question)
        learning.contributors |= learning.present
        sums = with_noise(PairSums(total["weight"], total["climb"]), settings, exchange, draws)
        field = field_of_noise(grid, nodes, counts, question.pairs, sums, settings)
        refuse_impossible_field(field, question.pairs)
    return SharedField(field, NOTHING, 0, learning.contributors)


class _NothingShared(Exception):
    """No node has k vehicles, or there are not as many; says which."""


@dataclass
class _Learning:
    """State of an exchange: the vehicles still present, and the nodes that may be published."""

    totals: Totals
    grid: Grid
    settings: ElevationSettings
    present: frozenset[str]
    nodes: IntArray
    driven: int = 0
    contributors: frozenset[str] = frozenset()
    segment_s: int = 0
    """Of the segments that are counted and summed now; 0: as the settings say."""

    def evaluate(self, fields: Sequence[Field]) -> Verdict:
        """Return the validation errors of the present vehicles for these maps."""
        nowhere = self.nodes[:0]
        total = self.total(Question(self.grid, self.settings, nowhere, evaluated=tuple(fields)))
        return Verdict(total["error"], total["gain"], total["spread"])

    def count(self) -> None:
        """Leave out nodes of fewer than k vehicles until none is left out any more."""
        before = -1
        while len(self.nodes) != before:
            before = len(self.nodes)
            counts = self.total(self.question(None))["vehicles"]
            self.driven = max(self.driven, int((counts > 0.5).sum()))
            self.nodes = self.nodes[counts > self.settings.minimum_vehicles - 0.5]
            if not self.driven:
                raise _NothingShared("nobody has driven in elevation.area")
            if not len(self.nodes):
                raise _NothingShared(
                    f"no node has {self.settings.minimum_vehicles} of the {len(self.present)} "
                    "vehicles that were counted"
                )

    def sums_for(self, field: Field) -> tuple[Contribution, Pairs]:
        """Return sums over the nodes and their pairs, each node from k vehicles that are still
        there.
        """
        least = self.settings.minimum_vehicles
        if field.prior.segment_s != (self.segment_s or self.settings.segment_s):
            # Longer segments touch other nodes: fewer of these have k vehicles, and none is new.
            self.segment_s = field.prior.segment_s
            self.count()
        while True:
            question = self.question(field)
            total = self.total(question)
            if total["vehicles"].min() > least - 0.5:
                return unpacked(total, question.nodes, question.pairs, least), question.pairs
            # Somebody dropped out after the last count: this total is not used.
            before = len(self.nodes), self.present
            self.count()
            if before == (len(self.nodes), self.present):
                raise RunError("The vehicles' counts and sums do not agree: one is at fault.")

    def question(self, field: Field | None) -> Question:
        """About the nodes that are left; refused where its answers would be too long."""
        length = self.segment_s
        question = Question(self.grid, self.settings, self.nodes, field, segment_s=length)
        if length and pairs_of_a_node(self.grid, length) > MOST_PAIRS:
            raise _NothingShared("longer segments would join too many nodes")
        if length and words_of(question.fields) > MOST_WORDS:
            raise _NothingShared("sums over longer segments would be too long")
        refuse_long(question.fields, f"{len(self.nodes):,} nodes")
        return question

    def total(self, question: Question) -> SumValues:
        """Over those that are there; from now on only those in it are."""
        enough = max(2, self.settings.minimum_vehicles)
        called = len(self.present)
        if called < enough:
            raise _NothingShared(f"{called} vehicles have enrolled, and {enough} must drive a node")
        total, self.present = self.totals(question, self.present)
        left = len(self.present)
        if left < enough:
            raise RunError(f"{left} vehicles are in a sum for hills, and {enough} are needed.")
        if "vehicles" in total:
            refuse_impossible_counts(total["vehicles"], left)
        if "value" in total:
            refuse_impossible_sums(total, question.pairs, left)
        if "weight" in total:
            sums = PairSums(total["weight"], total["climb"])
            refuse_impossible_pair_sums(sums, self.settings.clip, left)
        return total
