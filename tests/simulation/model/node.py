"""One broker of the producer's simulation: its request handlers."""

from __future__ import annotations

from kprod.wire.versions import ApiKey
from tests.simulation.interference import Interference
from tests.simulation.model.cluster import Cluster, View
from tests.simulation.model.host import Host
from tests.simulation.model.produce import ProduceHandler
from tests.simulation.model.server_end import ServerEnd
from tests.simulation.model.wire import read_request, topics_of
from tests.simulation.setup import Setup
from tests.simulation.wires import Wires
from tests.support.scripted_cluster import ReceivedRequest, api_keys, frame

UNSUPPORTED_VERSION = 35
REFUSALS = (31, 53)


class Node(Host):
    """Acts on the cluster's state; its metadata answers may lag behind."""

    def __init__(self, node_id: int, setup: Setup, cluster: Cluster, wires: Wires) -> None:
        super().__init__(node_id, setup.service, wires)
        self._cluster = cluster
        self._view = cluster.view()
        self._produce = ProduceHandler(self, setup, cluster, wires.events)
        self._ranges = {
            ApiKey.PRODUCE: (3, setup.produce_version),
            ApiKey.METADATA: (4, setup.metadata_version),
            ApiKey.API_VERSIONS: (0, setup.handshake_version),
            ApiKey.INIT_PRODUCER_ID: (0, 5),
        }
        cluster.listen(self._update)

    @property
    def up(self) -> bool:
        return self._cluster.up[self.node_id]

    def _update(self, view: View) -> None:
        if view.number >= self._view.number:
            self._view = view

    def _stop(self, gap: float, *, lose_tail: bool) -> None:
        self._cluster.went_down(self.node_id, gap, lose_tail=lose_tail)

    def restart(self, *, from_snapshot: bool = False) -> None:
        if not self.up:
            self._cluster.came_up(self.node_id, from_snapshot=from_snapshot)
            self._view = self._cluster.view()

    def remember_little(self) -> None:
        for partition in self._cluster.partitions:
            if partition.leader == self.node_id:
                partition.log.load_snapshot()

    # Requests ---------------------------------------------------------------------------------

    def carry_out(self, end: ServerEnd, message: bytes, fault: Interference | None) -> None:
        request = read_request(message)
        if request.api is ApiKey.PRODUCE:
            self._produce.handle(end, request, fault)
            return
        code = fault.code if fault is not None and fault.how == "error-before" else 0
        if request.api is ApiKey.METADATA:
            response = self._metadata(request, code)
        elif request.api is ApiKey.API_VERSIONS:
            response = self._versions(request, code)
        else:
            self._cluster.refused_permanently |= code in REFUSALS
            producer_id, epoch = (-1, -1) if code else self._cluster.new_producer()
            response = frame(
                request, error_code=code, producer_id=producer_id, producer_epoch=epoch
            )
        end.respond(response, fault)

    def _versions(self, request: ReceivedRequest, code: int) -> bytes:
        """An unknown version is answered in version 0."""
        if request.version > self._ranges[ApiKey.API_VERSIONS][1]:
            request, code = request._replace(version=0), UNSUPPORTED_VERSION
        return frame(request, error_code=code, api_keys=api_keys(self._ranges))

    def _metadata(self, request: ReceivedRequest, code: int) -> bytes:
        topics = self._cluster.answer(self._view, topics_of(request))
        if code:
            topics = [{**topic, "error_code": code, "partitions": ()} for topic in topics]
        brokers = [b for b in self._view.brokers if b.node_id not in self._cluster.unlisted]
        return frame(
            request,
            brokers=[broker._asdict() for broker in brokers],
            cluster_id=self._cluster.cluster_id,
            controller_id=brokers[0].node_id if brokers else -1,
            topics=topics,
        )
