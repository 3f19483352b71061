"""Messages between server and vehicles, carried by Flower; nothing else imports Flower.

Works with Flower's public interface on any version. Where Flower's version is known, the SuperLink
and the run's channel take a fast path (`fast_path`) with three measured gains, and nothing else:

    short answers             the four frequent paths skip Flower's nine layers of middleware
    held polls                a vehicle's poll is answered when there is a message for it
    single-request messages   a message travels with all of its parts in one request
"""
