"""The cluster that some of these tests share."""

from tests.cluster import cluster as cluster
