"""Where each epoch of a partition's leader began (``leader-epoch-checkpoint``)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from kprod.broker.log.checkpoint_files import read_checkpoint, write_checkpoint

LEADER_EPOCHS_FILE: Final = "leader-epoch-checkpoint"


class EpochEntry(NamedTuple):
    """The first offset written in an epoch."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """Epochs and their first offsets, both increasing (Kafka: LeaderEpochFileCache, KIP-101).

    Guarded by the partition's lock. The file is replaced before an offset of a new epoch is
    assigned, so that a reader always knows which leader wrote a record.
    """

    def __init__(self, path: Path | None) -> None:
        """Read the file; one that is missing or damaged counts as empty, and is made anew.

        Without one everything is in memory.
        """
        self._path = path
        self.entries = [] if path is None else read_checkpoint(path, _parse_entry)

    @property
    def latest(self) -> int:
        """The present epoch; 0 when nothing is known."""
        return self.entries[-1].epoch if self.entries else 0

    def begin(self, epoch: int, start_offset: int) -> None:
        """An epoch begins; does nothing for one that is not newer. ``OSError`` changes nothing."""
        if self.entries and epoch <= self.latest:
            return
        # An epoch in which nothing was written never was.
        kept = [entry for entry in self.entries if entry.start_offset < start_offset]
        self._replace([*kept, EpochEntry(epoch, start_offset)])

    def note(self, epoch: int, start_offset: int) -> None:
        """A batch of this epoch was found in the log, on recovery; writes nothing.

        -1 stands for none: the formats 0 and 1 have no epochs.
        """
        if epoch >= 0 and (not self.entries or epoch > self.latest):
            self.entries.append(EpochEntry(epoch, start_offset))

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch up to ``epoch`` and where it ended; (-1, -1) when it is not known."""
        if epoch > self.latest or not self.entries or epoch < self.entries[0].epoch:
            return (-1, -1)
        number = max(n for n, entry in enumerate(self.entries) if entry.epoch <= epoch)
        following = self.entries[number + 1 :]
        end = following[0].start_offset if following else log_end
        return self.entries[number].epoch, end

    def epoch_at(self, offset: int) -> int:
        """The epoch an offset was written in; -1 when it is not known."""
        found = [entry.epoch for entry in self.entries if entry.start_offset <= offset]
        return found[-1] if found else -1

    def drop_after(self, end_offset: int) -> None:
        """The log was cut off there. Writes the file if that changes it."""
        kept = [entry for entry in self.entries if entry.start_offset < end_offset]
        if not kept and self.entries:
            kept = [EpochEntry(self.entries[0].epoch, end_offset)]
        if kept != self.entries:
            self._replace(kept)

    def drop_before(self, start_offset: int) -> None:
        """The log begins there now. Writes the file if that changes it."""
        older = [entry for entry in self.entries if entry.start_offset <= start_offset]
        if older and (len(older) > 1 or older[0].start_offset < start_offset):
            newer = [entry for entry in self.entries if entry.start_offset > start_offset]
            self._replace([EpochEntry(older[-1].epoch, start_offset), *newer])

    def _replace(self, entries: list[EpochEntry]) -> None:
        if self._path is not None:
            write_checkpoint(self._path, [f"{e.epoch} {e.start_offset}" for e in entries])
        self.entries = entries

    def flush(self) -> None:
        """Write the file as it is in memory."""
        self._replace(self.entries)


def _parse_entry(fields: list[str]) -> EpochEntry:
    return EpochEntry(*map(int, fields))
