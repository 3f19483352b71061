"""Map data of a trip: elevation and grade, speed limits and features along the road."""

from fedwatt.telemetry.maps.elevation import read_terrain_model, with_elevation
from fedwatt.telemetry.maps.enrich import EnrichedVehicles
from fedwatt.telemetry.maps.osm import Extract
from fedwatt.telemetry.maps.roads import with_map

__all__ = ["EnrichedVehicles", "Extract", "read_terrain_model", "with_elevation", "with_map"]
