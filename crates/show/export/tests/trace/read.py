"""Reads a trace by Perfetto's own package, and prints its events as JSON. A field that the package does not know is an error."""

import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent


def known(message):
    assert len(UnknownFieldSet(message)) == 0, message
    for field, value in message.ListFields():
        if field.message_type:
            for inner in value if isinstance(value, (list, tuple)) or hasattr(value, "append") else [value]:
                known(inner)


with open(sys.argv[1], "rb") as file:
    trace = Trace.FromString(file.read())
known(trace)
tracks, texts, events = {}, {}, []
for packet in trace.packet:
    if packet.sequence_flags & TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
        texts = {}
    for field, entries in packet.interned_data.ListFields():
        for entry in entries:
            texts[field.name, entry.iid] = entry.str.decode() if field.name.endswith("_values") else entry.name
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        name = track.name
        if track.HasField("process"):
            name = f"process {track.process.pid}"
        if track.HasField("thread"):
            name = f"thread {track.thread.tid}"
        tracks[track.uuid] = name, track.parent_uuid if track.HasField("parent_uuid") else None
    if packet.HasField("track_event"):
        event = packet.track_event
        arguments = []
        for argument in event.debug_annotations:
            kind = argument.WhichOneof("value")
            value = getattr(argument, kind)
            if kind == "string_value_iid":
                value = texts["debug_annotation_string_values", value]
            elif kind not in ("string_value", "double_value"):
                value = int(value) % 2**64
            arguments.append([texts["debug_annotation_names", argument.name_iid], value])
        events.append(
            [
                packet.timestamp,
                TrackEvent.Type.Name(event.type).split("_")[-1].title(),
                *tracks[event.track_uuid],
                "".join(texts["event_categories", iid] for iid in event.category_iids),
                texts["event_names", event.name_iid] if event.name_iid else "",
                list(event.flow_ids),
                arguments,
            ]
        )
json.dump(events, sys.stdout)
