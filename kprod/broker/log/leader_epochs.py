"""Where each epoch of a partition's leader began (``leader-epoch-checkpoint``)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from kprod.broker.log.checkpoint_files import read_checkpoint, write_checkpoint

LEADER_EPOCHS_FILE: Final = "leader-epoch-checkpoint"


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset that was written in it."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """Leader epochs and their first offsets (Kafka: LeaderEpochFileCache, KIP-101).

    Both increase from entry to entry. The partition's lock guards them. The file is replaced before
    the first record of a new epoch gets its offset. So the epoch in which a record was written is
    always known.
    """

    def __init__(self, path: Path | None) -> None:
        """Read the file at ``path``. A missing or damaged file counts as empty.

        If ``path`` is None, epochs are kept only in memory.
        """
        self._path = path
        self.entries = [] if path is None else read_checkpoint(path, _parse_entry)

    @property
    def latest(self) -> int:
        """The current epoch; 0 if no epoch is known."""
        return self.entries[-1].epoch if self.entries else 0

    def begin(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch at ``start_offset``. Does nothing if this or a later epoch has begun.

        If this raises ``OSError``, nothing has changed.
        """
        if self.entries and epoch <= self.latest:
            return
        # An epoch in which nothing was written never was.
        kept = [entry for entry in self.entries if entry.start_offset < start_offset]
        self._replace([*kept, EpochEntry(epoch, start_offset)])

    def note(self, epoch: int, start_offset: int) -> None:
        """Add the epoch of a batch that was found during recovery, but do not write the file.

        An epoch of -1 is ignored, because batches of the formats 0 and 1 have no epoch.
        """
        if epoch >= 0 and (not self.entries or epoch > self.latest):
            self.entries.append(EpochEntry(epoch, start_offset))

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Return the latest known epoch up to ``epoch``, and its end offset.

        Returns (-1, -1) if ``epoch`` is newer than the current one or older than all known ones.
        """
        if epoch > self.latest or not self.entries or epoch < self.entries[0].epoch:
            return (-1, -1)
        number = max(n for n, entry in enumerate(self.entries) if entry.epoch <= epoch)
        following = self.entries[number + 1 :]
        end = following[0].start_offset if following else log_end
        return self.entries[number].epoch, end

    def epoch_at(self, offset: int) -> int:
        """Return the epoch in which an offset was written; -1 if it is unknown."""
        found = [entry.epoch for entry in self.entries if entry.start_offset <= offset]
        return found[-1] if found else -1

    def drop_after(self, end_offset: int) -> None:
        """Drop the epochs after ``end_offset``, the new end of the log.

        Writes the file if the entries change.
        """
        kept = [entry for entry in self.entries if entry.start_offset < end_offset]
        if not kept and self.entries:
            kept = [EpochEntry(self.entries[0].epoch, end_offset)]
        if kept != self.entries:
            self._replace(kept)

    def drop_before(self, start_offset: int) -> None:
        """Drop the epochs before ``start_offset``, the new start of the log.

        Writes the file if the entries change.
        """
        older = [entry for entry in self.entries if entry.start_offset <= start_offset]
        if older and (len(older) > 1 or older[0].start_offset < start_offset):
            newer = [entry for entry in self.entries if entry.start_offset > start_offset]
            self._replace([EpochEntry(older[-1].epoch, start_offset), *newer])

    def _replace(self, entries: list[EpochEntry]) -> None:
        if self._path is not None:
            write_checkpoint(self._path, [f"{e.epoch} {e.start_offset}" for e in entries])
        self.entries = entries

    def flush(self) -> None:
        """Write the entries to the file."""
        self._replace(self.entries)


def _parse_entry(fields: list[str]) -> EpochEntry:
    return EpochEntry(*map(int, fields))
