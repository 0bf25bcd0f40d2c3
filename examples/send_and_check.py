"""Send many records, and look at the result of each.

python examples/send_and_check.py --bootstrap-servers localhost:9092
"""

from __future__ import annotations

import argparse
import sys

from kprod import KafkaProducer
from kprod.errors import KprodError
from kprod.types import Persisted

RECORDS = 10_000


def main() -> int:
    """Return 0 if every record is stored."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic", default="orders")
    arguments = parser.parse_args()

    to_repeat = []
    with KafkaProducer(
        bootstrap_servers=arguments.bootstrap_servers, value_serializer="json"
    ) as producer:
        orders = [{"id": number, "total": number * 1.5} for number in range(RECORDS)]
        futures = [
            producer.send(arguments.topic, order, key=str(order["id"]).encode()) for order in orders
        ]
        for order, future in zip(orders, futures, strict=True):
            try:
                future.get(timeout=60)
            except KprodError as error:
                print(f"order {order['id']}: {error}", file=sys.stderr)
                # MAYBE: the record may be in the log. Sending it again could store it twice.
                if error.persisted is Persisted.NO:
                    to_repeat.append(order)
    print(f"{len(futures) - len(to_repeat)} of {len(futures)} orders need no repetition")
    return 1 if to_repeat else 0


if __name__ == "__main__":
    sys.exit(main())
