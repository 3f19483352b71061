"""A SuperLink whose vehicles may send a megabyte per hour: `python -m`, as the real one."""

from fedwatt.deploy.transport import request_filter
from fedwatt.deploy.transport.superlink import start

if __name__ == "__main__":
    # Here alone: doctest collection imports this module into the processes of all tests.
    request_filter.HOURLY_BYTES = 2**20
    start()
