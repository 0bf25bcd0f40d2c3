"""Bugs for the protocols of both modes. The model finds each of them within a few seeds."""

from __future__ import annotations

from tests.support.planted import bugs

ONCE = bugs("""
    marker_outside
    kprod.exactly_once.protocol.write_once
    - yield CommitMarkers(shard.transactional_id, ((shard.group, marker),))
    + yield CommitMarkers(shard.transactional_id, ())
    + yield CommitMarkers(shard.transactional_id, ((shard.group, marker),))

    marker_before_rows
    kprod.exactly_once.protocol.write_once
    - written: Written = yield WriteRows(shard.transactional_id)
    - marker = marker_of(shard, written)
    - yield CommitMarkers(shard.transactional_id, ((shard.group, marker),))
    + marker = marker_of(shard, Written(rows=0, bytes=0))
    + yield CommitMarkers(shard.transactional_id, ((shard.group, marker),))
    + yield WriteRows(shard.transactional_id)
    + yield CommitMarkers(shard.transactional_id, ())
    - yield CompareRows(marker)

    read_before_taking_over | 24
    kprod.exactly_once.protocol.write_once
    - yield TakeOver(shard.transactional_id)
    - marker: Marker | None = yield ReadMarker(shard.group)
    + marker: Marker | None = yield ReadMarker(shard.group)
    + yield TakeOver(shard.transactional_id)

    no_marker
    kprod.exactly_once.protocol.write_once
    - if marker is not None and is_done(marker, shard):
    + if False:

    count_ignored
    kprod.exactly_once.protocol.deliver
    + return (yield from write_once(replace(shard, shards=None), patience))
    kprod.exactly_once.protocol.write_once
    - yield CompareRows(marker)

    count_in_markers
    kprod.exactly_once.protocol.deliver
    - if shard.shards is None:
    + if True:

    layout_without_fencing | 287
    kprod.exactly_once.protocol.lay_out
    - yield TakeOver(shard.layout_id)
    + yield TakeOver(f"{shard.layout_id}.{shard.run}.{shard.number}")
    - yield CommitMarkers(shard.layout_id, ((shard.layout_id, fresh),))
    + name = f"{shard.layout_id}.{shard.run}.{shard.number}"
    + yield CommitMarkers(name, ((shard.layout_id, fresh),))

    loser_passes_for_done | 14
    kprod.exactly_once.protocol.write_once
    - marker = yield from _wait_for_winner(shard, patience, fenced)
    - yield CompareRows(marker)
    + marker = marker_of(shard, Written(rows=0, bytes=0))

    stale_passes_for_done
    kprod.exactly_once.protocol.write_once
    - if marker is not None and is_done(marker, shard):
    - yield CompareRows(marker)
    + if marker is not None and marker.batch + 1 >= shard.batch:

    id_by_attempt
    kprod.exactly_once.protocol.write_once
    + global attempts
    + attempts = globals().get("attempts", 0) + 1
    + own = f"{shard.transactional_id}.{attempts}"
    - yield TakeOver(shard.transactional_id)
    + yield TakeOver(own)
    - written: Written = yield WriteRows(shard.transactional_id)
    + written = yield WriteRows(own)
    - yield CommitMarkers(shard.transactional_id, ((shard.group, marker),))
    + yield CommitMarkers(own, ((shard.group, marker),))

    job_by_run
    kprod.exactly_once.protocol.deliver
    + shard = replace(shard, job=f"{shard.job}.{shard.run}")

    unstable_reads | 11
    tests.spark.exactly_once.model.Brokers.is_changing
    + return False
""")

ATOMIC = bugs("""
    decision_after_ends
    kprod.exactly_once.atomic.commit
    - yield CommitMarkers(of.layout_id, tuple(markers))
    - yield from _end(of, prepared, of.run)
    + yield from _end(of, prepared, of.run)
    + yield CommitMarkers(of.layout_id, tuple(markers))

    no_decision | 6
    kprod.exactly_once.atomic.commit
    - yield CommitMarkers(of.layout_id, tuple(markers))

    record_not_read | 4
    kprod.exactly_once.atomic.commit
    - decision = yield from _on_record(of, mine)
    + decision = None
    - yield from _make_sure(of, mine)
    ...
    - yield from _end(of, prepared, of.run)
    + yield EndAll(mine, committed=True)

    driver_not_fenced | 6
    kprod.exactly_once.atomic.commit
    - yield TakeOver(of.layout_id)
    + name = f"{of.layout_id}/{of.run}"
    + yield TakeOver(name)
    - yield from _make_sure(of, mine)
    - markers = decided(of, shards, prepared)
    + markers = decided(of, shards, prepared)
    - yield CommitMarkers(of.layout_id, tuple(markers))
    + yield CommitMarkers(name, tuple(markers))
    - yield from _end(of, prepared, of.run)
    + yield EndAll(mine, committed=True)

    lost_passes_for_done
    kprod.exactly_once.atomic._make_sure
    - if lost:
    + if False:
    kprod.exactly_once.atomic._end
    - if missing:
    + if False:

    everything_open_is_committed
    kprod.exactly_once.atomic.commit
    - yield from _make_sure(of, mine)
    + opened = yield ListOpen(of.job_name)
    - yield from _end(of, prepared, of.run)
    + yield EndAll(tuple(opened), committed=True)

    losers_aborted_by_epoch | 205
    kprod.exactly_once.atomic._fence_others
    - yield FenceAll(tuple(one.transactional_id for one in opened if one[:3] not in known))
    + yield EndAll(tuple(one for one in opened if one[:3] not in known), committed=False)

    copies_listed_once | 2
    kprod.exactly_once.atomic.commit
    - yield from _fence_others(of, mine)

    abort_after_decision | 5
    kprod.exactly_once.atomic.abort
    - decision = yield from _on_record(of, mine)
    + before = Marker(batch=of.batch - 1, shards=of.shards)
    + yield CommitMarkers(of.layout_id, ((of.layout_id, before),))
    + decision = None

    marker_outside
    kprod.exactly_once.atomic.prepare
    - prepared: PreparedTransaction = yield Prepare(own.transactional_id, own.group, marker)
    + prepared = yield Prepare(own.transactional_id, f"{own.group}.elsewhere", marker)

    rewritten_without_looking
    kprod.exactly_once.protocol.go_forward
    - (committed,) = yield EndAll((winner.transaction,), committed=True)
    + yield TakeOver(own.transactional_id)
    + written = yield WriteRows(own.transactional_id)
    + marker = marker_of(own, written)
    + yield CommitMarkers(own.transactional_id, ((own.group, marker),))
    + return Delivered(marker=marker, by_us=True)

    committed_by_tasks
    kprod.exactly_once.atomic.prepare
    - prepared: PreparedTransaction = yield Prepare(own.transactional_id, own.group, marker)
    + yield CommitMarkers(own.transactional_id, ((own.group, marker),))
    + return Delivered(marker=marker, by_us=True)

    copy_looks_once | 43
    kprod.exactly_once.atomic.prepare
    - decision = yield from _on_record(shard, (prepared,), wait=False)
    + decision = None
""")

OF_CHANGES = bugs("""
    aborted_once | 151
    kprod.exactly_once.atomic.abandon
    - for pause in (GRACE, 0.0):
    + for pause in (GRACE,):

    nothing_aborted_without_reports
    kprod.exactly_once.atomic.abort
    - return (yield from abandon(of))
    + if prepared:
    +     return (yield from abandon(of))
    + yield Pause(1.0)
    + return Ended(committed=False, by_us=True)

    prepared_stays
    kprod.exactly_once.protocol._fence_prepared
    - yield FenceAll(tuple(lost))
    + yield Pause(0.0)

    layout_of_others_believed | 4
    kprod.exactly_once.protocol.deliver
    - if (layout.run, layout.start) != (shard.run, shard.start):
    + if False:
""")

OF_OPERATORS = bugs("""
    anything_committed_by_hand | 6
    kprod.cli.spark_batches.refusal
    + return None

    committed_by_name | 1
    kprod.cli.spark_batches.refusal
    - if entry.rpartition(":")[0] == counted:
    + if entry.partition(":")[0] == attempt["attempt"]:

    aborted_by_hand_by_epoch | 5
    tests.spark.exactly_once.worlds.abort_by_hand
    - yield FenceAll(tuple(one.transactional_id for one in found))
    + yield EndAll(tuple(found), committed=False)
""")

OF_CALLS = bugs("""
    one_run_for_all
    kprod.exactly_once.protocol.deliver
    + shard = replace(shard, run="application")
    kprod.exactly_once.protocol.write_once
    - marker = yield from _wait_for_winner(shard, patience, fenced)
    - yield CompareRows(marker)
    + marker = yield from _wait_for_winner(shard, patience, fenced)

    numbers_only
    kprod.exactly_once.protocol.write_once
    - yield CompareRows(marker)
    + yield CompareRows(replace(marker, digest=None))

    any_topic
    kprod.exactly_once.protocol.deliver
    + shard = replace(shard, target="")
    kprod.exactly_once.atomic.prepare
    + shard = replace(shard, target="")
    kprod.exactly_once.atomic.commit
    + of = replace(of, target="")

    looks_at_no_shard
    kprod.exactly_once.protocol.lay_out
    - begun = yield from is_begun(shard, range(shard.shards or 0))
    + begun = False

    atomic_looks_at_no_shard
    kprod.exactly_once.atomic.prepare
    - if decision is None and (yield from is_begun(shard, (shard.number,))):
    + if False:

    winners_are_lost
    kprod.exactly_once.protocol.go_forward
    - if committed:  # now, or before: either way its marker was there
    + if False:

    decided_by_anyone
    kprod.exactly_once.atomic.commit
    + of = replace(of, run="application")

    any_marker_is_mine
    kprod.exactly_once.atomic._end
    - marker is not None and of.run == decided_by and marker.run != decided_by
    + False
    kprod.exactly_once.atomic.commit
    - if decision.layout.run != of.run and _uncounted(decision, mine):
    + if False:
""")

OF_JOBS = {"once": ONCE, "atomic": ATOMIC, "changes": OF_CHANGES, "operator": OF_OPERATORS}
WHERE_CALLS_SHOW = (
    ("one_run_for_all", "TWO_DRIVERS", False, 9),
    ("one_run_for_all", "CANCELLED", False, 1),
    ("numbers_only", "OTHER_ROWS", False, 67),
    ("numbers_only", "OLD_NAME", False, 0),
    ("numbers_only", "OTHER_ROWS", True, 741),
    ("numbers_only", "OLD_NAME", True, 0),
    ("any_topic", "SECOND_TOPIC", False, 0),
    ("any_topic", "SECOND_TOPIC", True, 1),
    ("looks_at_no_shard", "EXPIRED", False, 5),
    ("atomic_looks_at_no_shard", "EXPIRED", None, 13),
    ("winners_are_lost", "EXPIRED", True, 0),
    ("decided_by_anyone", "TWO_DRIVERS", True, 121),
    ("any_marker_is_mine", "TWO_DRIVERS", True, 121),
)
"""The situation, whether the calls are atomic (None: some of them), and a seed."""
