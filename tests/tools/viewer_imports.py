"""Reads traces as Perfetto's importers do, and refuses what they would drop or what its schema does not allow.

Neither Debian nor npm has Perfetto's trace_processor. What is done here follows its sources (the Perfetto project,
src/trace_processor/importers/: json/json_utils.cc and json/json_trace_tokenizer.cc for times, common/slice_tracker.cc
for slices, common/flow_tracker.cc for flows; protos/perfetto/trace/ for the messages; versions of 2021 to 2025).
"""

import collections
import decimal
import gzip
import json
import re
import struct

MOST_NESTED = 512  # slice_tracker.h: kMaxDepth

# Times are in nanoseconds.
Slice = collections.namedtuple("Slice", "process track begin end category name args")
Flow = collections.namedtuple("Flow", "source target")  # places of slices
Counter = collections.namedtuple("Counter", "process name at value")


class Dropped(Exception):
    """An importer would drop or misread this."""


class Imported:
    """What a viewer shows: slices with the place of the slice around each, flows, counters, names."""

    def __init__(self):
        self.slices, self.parents, self.flows, self.counters = [], [], [], []
        self.processes = {}  # names
        self.tracks = {}  # names of (process, track)


def text_of(path):
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


# How importers read a number of microseconds, each as nanoseconds. Perfetto's of 2021 truncated both; later ones read
# the digits of `ts` and truncated `dur`; those since 2025 round.
def digits(text):
    return int(decimal.Decimal(text) * 1000)


def truncated(text):
    return int(float(text) * 1000.0)


def rounded(text):
    return round(float(text) * 1000.0)


READINGS = {"digits": (digits, digits), "truncated": (truncated, truncated), "mixed": (digits, truncated),
            "rounded": (rounded, rounded)}


class Track:
    """The open slices of a track, as SliceTracker keeps them."""

    def __init__(self, imported):
        self.imported, self.open = imported, []

    def close_before(self, begin, end):
        slices = self.imported.slices
        while self.open:
            last = slices[self.open[-1]]
            if last.end is None or last.end > begin:
                break
            if last.end == begin and last.begin == last.end and begin == end:
                break  # instants stand on one another
            self.open.pop()
        for place in reversed(self.open):
            around = slices[place]
            if around.end is not None and end is not None and begin < around.end < end:
                raise Dropped(f"{around.name} ends at {around.end}, within the slice of {begin} to {end}")
        if len(self.open) >= MOST_NESTED:
            raise Dropped(f"more than {MOST_NESTED} slices are nested at {begin}")

    def push(self, each):
        self.close_before(each.begin, each.end)
        self.imported.parents.append(self.open[-1] if self.open else None)
        self.open.append(len(self.imported.slices))
        self.imported.slices.append(each)


def need(condition, why):
    if not condition:
        raise Dropped(why)


def read_chrome(path, reading="digits"):
    """Chrome trace JSON, as Motley writes it: exact to the nanosecond, every track named, nothing dropped."""
    read_ts, read_dur = READINGS[reading]
    document = json.loads(text_of(path), parse_float=str)
    need(document.get("displayTimeUnit") in ("ms", "ns"), "displayTimeUnit is ms or ns")
    imported, events = Imported(), []
    tracks = collections.defaultdict(lambda: Track(imported))
    for event in document["traceEvents"]:
        kind = event["ph"]
        need(kind in "MXsfC", f"ph {kind}")
        if kind == "M":
            if event["name"] == "process_name":
                imported.processes[event["pid"]] = event["args"]["name"]
            if event["name"] == "thread_name":
                imported.tracks[event["pid"], event["tid"]] = event["args"]["name"]
            continue
        for key in ("ts", "dur") if kind == "X" else ("ts",):
            need(isinstance(event[key], str) and re.fullmatch(r"\d+\.\d{3}", event[key]),
                 f"{key} is {event[key]}, not whole nanoseconds")
        events.append((read_ts(event["ts"]), event))
    events.sort(key=lambda each: each[0])  # stable, as the importer's sorter is
    flows = {}
    for at, event in events:
        if event["ph"] == "C":
            for name, value in event["args"].items():
                imported.counters.append(Counter(event["pid"], f"{event['name']} {name}", at, value))
            continue
        where = event["pid"], event["tid"]
        need(where in imported.tracks and event["pid"] in imported.processes, f"track {where} has no name")
        if event["ph"] == "X":
            tracks[where].push(Slice(event["pid"], imported.tracks[where], at, at + read_dur(event["dur"]),
                                     event["cat"], event["name"], event["args"]))
            continue
        track = tracks[where]
        need(track.open, f"no slice is open where flow {event['id']} binds")
        place = track.open[-1]
        need(imported.slices[place].begin <= at <= imported.slices[place].end,
             f"flow {event['id']} binds to no slice at {at}")
        if event["ph"] == "s":
            need(event["id"] not in flows, f"flow {event['id']} begins twice")
            flows[event["id"]] = place
        else:
            need(event["id"] in flows and event.get("bp") == "e", f"flow {event['id']} ends before it begins")
            imported.flows.append(Flow(flows.pop(event["id"]), place))
    need(not flows, f"flows {sorted(flows)} do not end")
    return imported


# Fields of the messages that Motley writes, by number: (name, kind, is repeated). A message is a dict of them.
NAME = {1: ("iid", "int"), 2: ("name", "text")}
MESSAGES = {
    "Trace": {1: ("packet", "TracePacket*")},
    "TracePacket": {8: ("timestamp", "int"), 10: ("sequence", "int"), 11: ("event", "TrackEvent"),
                    12: ("interned", "InternedData"), 13: ("flags", "int"), 60: ("track", "TrackDescriptor")},
    "TrackDescriptor": {1: ("uuid", "int"), 2: ("name", "text"), 3: ("process", "ProcessDescriptor"),
                        5: ("parent", "int"), 8: ("counter", "CounterDescriptor"), 11: ("ordering", "int"),
                        12: ("order", "signed")},
    "ProcessDescriptor": {1: ("pid", "signed"), 6: ("name", "text")},
    "CounterDescriptor": {3: ("unit", "int")},
    "TrackEvent": {3: ("categories", "int*"), 4: ("annotations", "DebugAnnotation*"), 9: ("type", "int"),
                   10: ("name", "int"), 11: ("uuid", "int"), 30: ("value", "signed"), 47: ("flows", "fixed*"),
                   48: ("ending_flows", "fixed*")},
    "DebugAnnotation": {1: ("name", "int"), 4: ("int", "signed"), 5: ("double", "double"), 6: ("string", "text")},
    "InternedData": {1: ("categories", "InternedName*"), 2: ("names", "InternedName*"),
                     3: ("annotations", "InternedName*")},
    "InternedName": NAME,
}
BEGIN, END, COUNTER = 1, 2, 4  # TrackEvent.Type


def varint(data, at):
    value = shift = 0
    while True:
        need(at < len(data) and shift < 70, "a varint does not end")
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def message(kind, data):
    fields, out, at = MESSAGES[kind], {}, 0
    while at < len(data):
        tag, at = varint(data, at)
        need(tag >> 3 in fields, f"{kind} has field {tag >> 3}")
        name, form = fields[tag >> 3]
        is_repeated, form = form.endswith("*"), form.rstrip("*")
        wire = {"int": 0, "signed": 0, "fixed": 1, "double": 1}.get(form, 2)
        need(tag & 7 == wire, f"{kind}.{name} has wire type {tag & 7}")
        if wire == 0:
            value, at = varint(data, at)
            if form == "signed" and value >= 1 << 63:
                value -= 1 << 64
        else:
            size, at = varint(data, at) if wire == 2 else (8, at)
            need(at + size <= len(data), f"{kind}.{name} ends early")
            raw, at = data[at:at + size], at + size
            if form in MESSAGES:
                value = message(form, raw)
            else:
                value = (raw.decode("utf-8") if form == "text" else struct.unpack("<d" if form == "double" else "<Q",
                                                                                  raw)[0])
        if is_repeated:
            out.setdefault(name, []).append(value)
        else:
            need(name not in out, f"{kind} has two of {name}")
            out[name] = value
    return out


class Names:
    """Names that packets bring along before, or where, they are used."""

    def __init__(self):
        self.known = {"categories": {}, "names": {}, "annotations": {}}

    def learn(self, interned):
        for kind, entries in interned.items():
            for entry in entries:
                need(entry["iid"] > 0 and entry["iid"] not in self.known[kind], f"name {entry} is known")
                self.known[kind][entry["iid"]] = entry["name"]

    def find(self, kind, iid):
        need(iid in self.known[kind], f"{kind} lacks {iid}")
        return self.known[kind][iid]


def read_perfetto(path):
    """Perfetto's protobuf: one sequence of packets, tracks described before they are used, pairs of begin and end."""
    imported, names, described, events = Imported(), Names(), {}, []
    for number, packet in enumerate(message("Trace", text_of(path)).get("packet", [])):
        need(packet.get("sequence", 0) > 0, f"packet {number} has no sequence")
        need(packet.get("flags", 0) & 2 and (packet["flags"] & 1) == (number == 0), f"packet {number} has wrong flags")
        names.learn(packet.get("interned", {}))
        if "track" in packet:
            track = packet["track"]
            need(track["uuid"] > 0 and track["uuid"] not in described, f"track {track['uuid']} is described twice")
            described[track["uuid"]] = track
            if "process" in track:
                need(track["process"]["pid"] > 0, "process 0 is the idle one")
                imported.processes[track["process"]["pid"]] = track["process"]["name"]
            else:
                need(track.get("parent") in described, f"track {track['uuid']} has no parent")
                track["pid"] = described[track["parent"]]["process"]["pid"]
                imported.tracks[track["pid"], track["uuid"]] = track["name"]
        else:
            event = packet["event"]
            need(event.get("uuid") in described, f"packet {number} is on an unknown track")
            need("timestamp" in packet, f"packet {number} has no time")
            if event["type"] == BEGIN:
                event["name"] = names.find("names", event["name"])
                event["categories"] = [names.find("categories", each) for each in event["categories"]]
                event["args"] = {names.find("annotations", each["name"]): each.get("int", each.get("double",
                                                                                                 each.get("string")))
                                 for each in event.get("annotations", [])}
            events.append((packet["timestamp"], event))
    events.sort(key=lambda each: each[0])
    import_events(events, described, imported)
    return imported


def import_events(events, described, imported):
    tracks = collections.defaultdict(lambda: Track(imported))
    flows = {}
    for at, event in events:
        track = described[event["uuid"]]
        need(("counter" in track) == (event["type"] == COUNTER), f"track {track['name']} has the wrong kind of event")
        if event["type"] == COUNTER:
            imported.counters.append(Counter(track["pid"], track["name"], at, event["value"]))
            continue
        stack = tracks[event["uuid"]]
        if event["type"] == BEGIN:
            imported.parents.append(stack.open[-1] if stack.open else None)
            stack.open.append(len(imported.slices))
            imported.slices.append(Slice(track["pid"], track["name"], at, None, event["categories"][0], event["name"],
                                         event["args"]))
            need(len(stack.open) <= MOST_NESTED, f"more than {MOST_NESTED} slices are nested at {at}")
        else:
            need(event["type"] == END and stack.open, f"a slice of {track['name']} ends that did not begin")
            place = stack.open.pop()
            imported.slices[place] = imported.slices[place]._replace(end=at)
        for flow in event.get("flows", []):
            need(flow not in flows, f"flow {flow} begins twice")
            flows[flow] = len(imported.slices) - 1
        for flow in event.get("ending_flows", []):
            need(flow in flows, f"flow {flow} ends before it begins")
            imported.flows.append(Flow(flows.pop(flow), place))
    need(not any(track.open for track in tracks.values()), "a slice does not end")
    need(not flows, f"flows {sorted(flows)} do not end")
