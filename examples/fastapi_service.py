"""A web service that answers when the record is stored, and shuts down without losing one.

    KAFKA=localhost:9092 uvicorn examples.fastapi_service:app

On SIGTERM uvicorn stops accepting, waits for the requests that it has, and leaves the lifespan:
the producer then sends what is queued. Give the process that long (terminationGracePeriodSeconds).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request

from kprod.aio import Producer
from kprod.errors import KprodError
from kprod.types import Persisted

TOPIC = os.environ.get("TOPIC", "orders")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One producer for the process: made after the fork, in the loop that uses it."""
    app.state.producer = producer = Producer(
        bootstrap_servers=os.environ.get("KAFKA", "localhost:9092"), value_serializer="json"
    )
    await producer.start()  # ends the start of the service, with the reason, if no broker answers
    yield
    report = await producer.close(timeout=20)
    print(f"closed: {report}", flush=True)


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def place_order(order: dict[str, Any], request: Request) -> dict[str, int]:
    """201 with the place of the record; 503 where it is not stored, 504 where it may be."""
    try:
        stored = await request.app.state.producer.send_and_wait(TOPIC, order)
    except KprodError as error:
        status = 503 if error.persisted is Persisted.NO else 504
        raise HTTPException(status, detail=str(error)) from error
    return {"partition": stored.partition, "offset": stored.offset}
