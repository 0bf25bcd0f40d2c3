"""Bugs planted in the transactional producer."""

from __future__ import annotations

from tests.support.planted import bugs

BUGS = bugs("""
    ignores failures | 3
    kprod.sender.transactions.Transactions.fail
    + return

    recovers from fencing | 141
    kprod.sender.transactions.Transactions.end_for_good
    + if self.state is not State.INITIALIZING:
    +     self.fail(error)
    + return

    forgets offsets | 0
    kprod.sender.transactions.Transactions.next_offsets
    - return offsets
    + self.offsets_sent(offsets)
    + return None

    commits always | 4
    kprod.sender.coordination.Coordination._next_of_transaction
    - committed = state is State.COMMITTING and self._refused_commit is None
    + committed = True

    treats partitions as added before the answer | 4
    kprod.sender.coordination.Coordination.leaves
    + if ask.api is ApiKey.ADD_PARTITIONS_TO_TXN:
    +     self._added.update(ask.about)
    +     self._wanted.clear()

    treats an end as done when its answer was lost | 12
    kprod.sender.coordination.Coordination.failed
    - self._needs_epoch = True
    + self._needs_epoch = self._needs_epoch or ask.api is not ApiKey.END_TXN
    - self._back_off(now)
    + self._back_off(now)
    + if sent and ask.api is ApiKey.END_TXN:
    +     self._ended(renewed=False)

    keeps the epoch though a late end may follow | 715
    kprod.sender.coordination.Coordination.failed
    - self._needs_epoch = True
    + pass

    reuses sequences | 90
    kprod.sender.coordination.Coordination.sequence_lost
    + return

    treats the coordinator's own abort as fencing (KAFKA-20785) | 2483
    kprod.sender.coordination.Coordination._react
    + if ask.api is ApiKey.END_TXN and code == ErrorCode.PRODUCER_FENCED:
    +     return self._end_for_good(Reaction.FENCED, BrokerError(code, str(ask)))

    ignores the error code of an end | 18
    kprod.sender.coordination.Coordination.take
    + if ask.api is ApiKey.END_TXN:
    +     reply = reply._replace(error_code=0)

    batches lack the transactional flag | 3
    kprod.sender.coordination.Coordination._identify
    - self._identity.producer = ProducerId(producer_id, epoch, transactional=True)
    + self._identity.producer = ProducerId(producer_id, epoch, transactional=False)

    never looks for another coordinator | 18
    kprod.sender.coordination.Coordination.answered
    - self._coordinators.pop(ask.coordinator, None)
    + pass
    kprod.sender.coordination.Coordination.take
    - self._coordinators[ask.coordinator] = reply.node_id, now
    + self._coordinators.setdefault(ask.coordinator, (reply.node_id, now))

    sends records of an aborted transaction with the next one | 5
    kprod.sender.coordination.Coordination._gather
    - return drained
    + return drained or state is State.ABORTING
    kprod.sender.coordination.Coordination._drop_queued
    + return

    commits offsets without the member id | 3
    kprod.sender.coordination.Coordination.leaves
    + if ask.api is ApiKey.TXN_OFFSET_COMMIT:
    +     *before, member, left = ask.fields
    +     ask.fields = *before, GroupMetadata(member.group_id), left
""")
