"""The highest sum of requests of a history: as tidemark counts them and as torch does."""
import pickle


def requested_peaks(snapshot, device=0):
    """(until the program frees them, until the free completes), from a whole history alone."""
    held = {}  # address -> bytes
    ours = torchs = ours_peak = torchs_peak = 0
    for entry in snapshot["device_traces"][device]:
        address = entry.get("addr")
        if entry["action"] == "alloc":
            held[address] = entry["size"]
            ours += entry["size"]
            torchs += entry["size"]
        elif entry["action"] == "free_requested":
            ours -= held[address]
        elif entry["action"] == "free_completed":
            torchs -= held.pop(address)
        ours_peak, torchs_peak = max(ours_peak, ours), max(torchs_peak, torchs)
    return ours_peak, torchs_peak


def requested_peaks_of_file(file):
    return requested_peaks(pickle.load(file))


def requested_peaks_of_rows(rows):
    """The same from the exported table `allocations` of one device, as (birth_event, release_event,
    death_event, requested_bytes)."""
    peaks = []
    for end in (1, 2):
        steps = sorted([(row[0], row[3]) for row in rows] +
                       [(row[end], -row[3]) for row in rows if row[end] is not None])
        level = peak = 0
        for _, step in steps:
            level += step
            peak = max(peak, level)
        peaks.append(peak)
    return tuple(peaks)
