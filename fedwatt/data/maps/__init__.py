"""What maps add to a trip: elevation and grade, speed limits and what lies along the road."""

from fedwatt.data.maps.elevation import read_terrain, with_elevation
from fedwatt.data.maps.enrich import EnrichedVehicles
from fedwatt.data.maps.osm import Extract
from fedwatt.data.maps.roads import with_map

__all__ = ["EnrichedVehicles", "Extract", "read_terrain", "with_elevation", "with_map"]
