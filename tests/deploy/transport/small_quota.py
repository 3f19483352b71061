"""A SuperLink whose vehicles may send a megabyte per hour: `python -m`, as the real one."""

from fedwatt.deploy.transport import request_filter
from fedwatt.deploy.transport.superlink import start

request_filter.HOURLY_BYTES = 2**20  # type: ignore[misc]

if __name__ == "__main__":
    start()
