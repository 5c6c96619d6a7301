#!/usr/bin/env python3
"""Traces as viewers see them: nothing is dropped, both forms show the same, and compressed files are read again.

Arguments: the program, the source tree. The importers are those of viewer_imports.py.
"""

import collections
import csv
import gzip
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import viewer_imports as viewer

PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, USAGE = 0, 2
SVG = "{http://www.w3.org/2000/svg}"
APART_NS = 6.5  # an instant of a view from its second, see models/trace/trace_view.hpp
SANITIZED = "MOTLEY_SANITIZED" in os.environ

PARTS = {part["name"]: part for part in json.loads(
    subprocess.run([PROGRAM, "doctor", "--json"], capture_output=True, text=True, check=True).stdout)["parts"]}
need_protobuf = unittest.skipUnless(PARTS["protobuf"]["state"] == "ran", "this build has no libprotobuf")

# A few small jobs in which slices are of every kind: micro-batches that interleave chunks, tensor-parallel collectives
# in computes and beside them, replicas, experts, offloading.
SMALL = ["--set", "train.global_batch=16"]
JOBS = {
    "plain": ["quickstart", "--set", "train.global_batch=8"],
    "interleaved": ["quickstart", *SMALL, "--set", "strategy.schedule=interleaved", "--set",
                    "strategy.virtual_stages=4"],
    "collectives beside computes": ["quickstart", *SMALL, "--set", "fidelity.tensor_parallel=fluid"],
    "all ranks": ["quickstart-train", "--no-fold"],
    "sharded": ["quickstart-train", "--set", "strategy.pipeline_parallel=1", "--set", "strategy.data_parallel=2",
                "--set", "strategy.zero=3", "--no-fold"],
}


def motley(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, timeout=300)


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def right(self, *arguments):
        answer = motley(*arguments)
        self.assertEqual((OK, ""), (answer.returncode, answer.stderr), arguments)
        return answer.stdout

    def trace(self, name, job, *options):
        path = self.folder / name
        self.right("simulate", *JOBS[job], "--no-changes", "--trace", path, *options)
        return path


def shown(imported):
    """What a person sees of the slices: the same in both forms."""
    return collections.Counter(
        (imported.processes[each.process], each.track, each.begin, each.end, each.category, each.name,
         None if parent is None else imported.slices[parent].name)
        for each, parent in zip(imported.slices, imported.parents))


class NothingIsDropped(Commands):
    def check_slices(self, imported, slack):
        for each, parent in zip(imported.slices, imported.parents):
            for key, at in (("begin_s", each.begin), ("end_s", each.end)):
                self.assertLessEqual(abs(each.args[key] * 1e9 - at), slack, each)
            if "kernel" in each.args:
                around = imported.slices[parent]
                self.assertEqual("compute", around.category)
                self.assertTrue(around.begin <= each.begin <= each.end <= around.end, each)
            else:
                self.assertIsNone(parent, each)
        # The counter's last value is what a rank holds throughout, and no value is below.
        values = collections.defaultdict(list)
        for each in imported.counters:
            values[each.process].append(each.value)
        self.assertEqual(set(imported.processes), set(values))
        for each in values.values():
            self.assertEqual(min(each), each[-1])

    def exact(self, imported):
        """The exact seconds of args, which the JSON reader gave as text."""
        for each in imported.slices:
            for key in ("begin_s", "end_s"):
                each.args[key] = float(each.args[key])
        return imported

    def test_every_reading_of_json_shows_all_slices_in_their_places(self):
        for job in JOBS:
            path = self.trace("run.json", job)
            written = sum(event["ph"] == "X" for event in json.loads(path.read_text())["traceEvents"])
            first = None
            for reading in viewer.READINGS:
                with self.subTest(job=job, reading=reading):
                    imported = self.exact(viewer.read_chrome(path, reading))
                    self.assertEqual(written, len(imported.slices))
                    self.assertGreater(sum("kernel" in each.args for each in imported.slices), 20)
                    self.check_slices(imported, APART_NS + 1)
                    flows = sorted(imported.flows)
                    first = first or (flows, imported)
                    self.assertEqual(len(first[0]), len(flows))
                    for flow in flows:
                        source, target = imported.slices[flow.source], imported.slices[flow.target]
                        self.assertRegex(source.name, r"^send to ")
                        self.assertRegex(target.name, r"^recv from ")
                        self.assertEqual(source.args["bytes"], target.args["bytes"])
            if job != "sharded":
                self.assertTrue(first[0], job)

    def test_slices_without_length_are_not_nested_too_deep(self):
        """In the null World all of them stand at one instant; viewers nest 512."""
        path = self.folder / "run.json"
        self.right("simulate", "quickstart", "--world", "null", "--set", "train.global_batch=4096", "--trace", path)
        imported = viewer.read_chrome(path)
        self.assertGreater(len(imported.slices), 4 * 512)
        self.assertLess(max(each.end for each in imported.slices), 20)

    def test_collectives_inside_computes_are_child_slices(self):
        imported = viewer.read_chrome(self.trace("run.json", "plain"))
        inside = [imported.slices[parent].name for each, parent in zip(imported.slices, imported.parents)
                  if parent is not None and each.category == "collective"]
        self.assertTrue(any(name.startswith("forward") for name in inside))
        self.assertTrue(any(name.startswith("backward") for name in inside))

    @need_protobuf
    def test_both_forms_show_the_same(self):
        for job in JOBS:
            with self.subTest(job=job):
                chrome = viewer.read_chrome(self.trace("run.json", job))
                perfetto = viewer.read_perfetto(self.trace("run.pftrace", job))
                self.assertEqual(shown(chrome), shown(perfetto))
                self.check_slices(perfetto, APART_NS)
                self.assertEqual(sorted((each.at, each.value) for each in chrome.counters),
                                 sorted((each.at, each.value) for each in perfetto.counters))
                ends = [collections.Counter((form.slices[flow.source][2:4], form.slices[flow.target][2:4])
                                            for flow in form.flows) for form in (chrome, perfetto)]
                self.assertEqual(ends[0], ends[1])

    def test_the_same_run_gives_the_same_bytes(self):
        names = ["run.json", "run.json.gz"] + ["run.pftrace", "run.perfetto-trace.gz"] * (
            PARTS["protobuf"]["state"] == "ran")
        for name in names:
            first = self.trace(name, "plain").read_bytes()
            self.assertEqual(first, self.trace(name, "plain").read_bytes(), name)


class TheImportersAreStrict(Commands):
    """What an importer would drop is found, so that the tests above can fail."""

    def change(self, change):
        path = self.trace("run.json", "plain")
        document = json.loads(path.read_text(), parse_float=lambda text: text + "!")
        slices = [each for each in document["traceEvents"] if each["ph"] == "X" and each["tid"] == 0]
        kernels = [each for each in slices if "kernel" in each["args"]]
        change([each for each in slices if each not in kernels], kernels, document["traceEvents"])
        path.write_text(re.sub(r'"(-?[0-9.e+-]+)!"', r"\1", json.dumps(document)))
        return path

    @staticmethod
    def longer(event, ns):
        whole, fraction = event["dur"].rstrip("!").split(".")
        event["dur"] = TheImportersAreStrict.microseconds(int(whole) * 1000 + int(fraction) + ns) + "!"

    @staticmethod
    def microseconds(ns):
        return f"{ns // 1000}.{ns % 1000:03}"

    def refused(self, change, why, reading="digits"):
        path = self.change(change)
        with self.assertRaisesRegex(viewer.Dropped, why):
            viewer.read_chrome(path, reading)

    def test_an_unchanged_trace_is_read(self):
        viewer.read_chrome(self.change(lambda computes, kernels, events: None))

    def test_slices_that_overlap_by_a_nanosecond(self):
        def overlap(computes, kernels, _):
            together = next(a for a, b in zip(kernels, kernels[1:]) if a["args"]["index"] == b["args"]["index"])
            self.longer(together, 1)
        self.refused(overlap, "within the slice of")

    def test_a_kernel_that_sticks_out_of_its_compute(self):
        def stick_out(computes, kernels, _):
            index = computes[0]["args"]["index"]
            self.longer([each for each in kernels if each["args"]["index"] == index][-1], 2000)
        self.refused(stick_out, "within the slice of")

    def test_slices_that_touch_where_only_some_importers_read_exactly(self):
        """They overlap where the fraction is cut off; those that a trace has do not."""
        def is_exact(ns):
            return viewer.truncated(self.microseconds(ns)) == ns
        end = 1_048_576_015  # nanoseconds
        self.assertFalse(is_exact(end))
        begin = next(ns for ns in range(end - 1000, end) if is_exact(ns) and is_exact(end - ns))

        def touch(computes, kernels, events):
            for ts, dur in ((begin, end - begin), (end, 500)):
                events.append({**kernels[0], "ts": self.microseconds(ts) + "!", "dur": self.microseconds(dur) + "!"})
        viewer.read_chrome(self.change(touch), "digits")
        self.refused(touch, "within the slice of", "truncated")

    def test_times_that_are_no_whole_nanoseconds(self):
        def finer(computes, kernels, _):
            computes[0]["ts"] = computes[0]["ts"].rstrip("!") + "5!"
        self.refused(finer, "not whole nanoseconds")

    def test_a_track_without_a_name(self):
        def forget(computes, kernels, events):
            events[:] = [each for each in events if each["ph"] != "M" or each["name"] != "thread_name"]
        self.refused(forget, "has no name")

    def test_a_flow_that_does_not_end(self):
        def forget(computes, kernels, events):
            events.remove(next(each for each in events if each["ph"] == "f"))
        self.refused(forget, "do not end")

    @need_protobuf
    def test_a_protobuf_cut_short_or_with_a_byte_changed_is_refused_or_shows_something_else(self):
        path = self.trace("run.pftrace", "all ranks")
        whole, original = path.read_bytes(), shown(viewer.read_perfetto(path))
        for cut in (len(whole) // 3, len(whole) - 1):
            path.write_bytes(whole[:cut])
            with self.assertRaises(viewer.Dropped):
                viewer.read_perfetto(path)
        event = re.search(rb"\x5a.\x48\x02", whole, re.S)  # a TrackEvent that begins with type 2, an end
        path.write_bytes(whole[:event.end() - 1] + b"\x01" + whole[event.end():])
        with self.assertRaises((viewer.Dropped, KeyError)):
            viewer.read_perfetto(path)
        self.assertTrue(original)


class Files(Commands):
    def test_a_compressed_trace_is_small_and_read_again(self):
        plain, packed = self.trace("run.json", "plain"), self.trace("run.json.gz", "plain")
        self.assertEqual(plain.read_bytes(), gzip.decompress(packed.read_bytes()))
        self.assertLess(packed.stat().st_size, plain.stat().st_size / 4)
        self.assertEqual(self.right("compare", plain, plain), self.right("compare", packed, packed))
        self.assertEqual(self.right("compare", plain, plain), self.right("compare", plain, packed))

    def test_the_first_bytes_tell_what_is_compressed_not_the_name(self):
        packed = self.trace("run.json.gz", "plain")
        renamed = packed.rename(self.folder / "run.json")
        self.assertIn("B/A = 1.000", self.right("compare", renamed, renamed))

    def test_calibrate_reads_compressed_traces(self):
        path = self.folder / "run.json.gz"
        answer = motley("train", "quickstart-train", "--steps", "2", "--trace", path, "--trace-kernels")
        self.assertEqual(OK, answer.returncode, answer.stderr)
        plain = self.folder / "run.json"
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        outs = []
        out = self.folder / "fitted.yaml"
        for source in (path, plain):
            answer = motley("calibrate", "--from", source, "--source", "this test", "--out", out, "--json")
            outs.append((answer.returncode, answer.stdout))
        self.assertEqual(OK, outs[0][0], outs)
        self.assertEqual(outs[0], outs[1])

    def test_a_damaged_compressed_trace_is_refused(self):
        packed = self.trace("run.json.gz", "plain")
        data = packed.read_bytes()
        for damaged in (data[:-9], data[: len(data) // 2], data[:-8] + b"12345678", b"\x1f\x8b", data + b"more"):
            packed.write_bytes(damaged)
            answer = motley("compare", packed, packed)
            self.assertEqual(USAGE, answer.returncode, answer.stdout)
            self.assertIn(packed.name, answer.stderr)

    @need_protobuf
    def test_commands_say_that_perfettos_form_is_for_viewers(self):
        path = self.trace("run.pftrace", "plain")
        answer = motley("compare", path, path)
        self.assertEqual(USAGE, answer.returncode)
        self.assertIn("is for viewers alone", answer.stderr)
        self.assertIn("--trace NAME.json", answer.stderr)

    @need_protobuf
    @unittest.skipUnless(shutil.which("protoc"), "protoc is not here")
    def test_protoc_decodes_all_of_perfettos_form(self):
        data = self.trace("run.pftrace", "all ranks").read_bytes()
        raw = subprocess.run(["protoc", "--decode_raw"], input=data, capture_output=True, check=True).stdout.decode()
        known = subprocess.run(["protoc", f"--proto_path={ROOT}/models/trace", "--decode=motley.perfetto.Trace",
                                "perfetto.proto"], input=data, capture_output=True, check=True).stdout.decode()
        self.assertEqual(len(re.findall(r"(?m)^1 \{", raw)), len(re.findall(r"(?m)^packet \{", known)))
        self.assertNotRegex(known, r"(?m)^ *\d+[ :]")  # fields that the schema lacks have a number for a name
        self.assertIn("TYPE_SLICE_BEGIN", known)


class WhatIsLeftOut(Commands):
    def head(self, path):
        return json.loads(path.read_text())["motley"]

    def test_a_trace_says_what_it_leaves_out(self):
        self.assertNotIn("left_out", self.head(self.trace("all.json", "plain")))  # folded: each rank is stood for
        self.assertEqual("kernels of computes", self.head(self.trace("none.json", "plain", "--no-trace-kernels"))[
            "left_out"])
        some = self.trace("some.json", "plain", "--trace-ranks", "0,16")
        self.assertEqual("30 of 32 ranks", self.head(some)["left_out"])
        processes = viewer.read_chrome(some).processes
        self.assertEqual({0, 16}, set(processes))

    @unittest.skipIf(SANITIZED, "takes long with sanitizers")
    def test_more_kernels_than_viewers_like_are_traced_if_asked_for(self):
        path = self.folder / "run.json"
        large = ["simulate", "quickstart", "--set", "train.global_batch=256", "--no-changes", "--trace", path]
        answer = motley(*large)
        self.assertEqual(OK, answer.returncode)
        self.assertIn("leaves out the kernels of computes, because they are more than 50000", answer.stderr)
        self.assertIn("--trace-kernels", answer.stderr)
        self.assertEqual("kernels of computes", self.head(path)["left_out"])
        self.right(*large, "--trace-kernels")
        self.assertNotIn("left_out", self.head(path))


class Pictures(Commands):
    def timeline(self, *arguments):
        out = self.folder / "picture.svg"
        answer = subprocess.run([sys.executable, ROOT / "tools/timeline", arguments[0], out, *map(str, arguments[1:])],
                                capture_output=True, text=True)
        self.assertEqual((0, ""), (answer.returncode, answer.stderr))
        return xml.etree.ElementTree.parse(out).getroot()

    @staticmethod
    def bars(picture):
        """(name, milliseconds, x, width) of each bar."""
        for each in picture.iter(f"{SVG}rect"):
            title = each.find(f"{SVG}title")
            if title is not None:
                name, length = re.fullmatch(r"(.*): ([0-9.]+) ms", title.text).groups()
                yield name, float(length), float(each.get("x")), float(each.get("width"))

    def test_bars_of_a_timeline_are_as_wide_as_their_time_however_many_there_are(self):
        for job in ("interleaved", "plain"):
            path = self.trace("run.json.gz", job)
            imported = viewer.read_chrome(path)
            drawn = [each for each, parent in zip(imported.slices, imported.parents)
                     if parent is None and (each.track == "compute" or each.category == "collective")]
            picture = self.timeline(path)
            bars = list(self.bars(picture))
            self.assertEqual(collections.Counter(each.name for each in drawn), collections.Counter(b[0] for b in bars))
            span = max(each.end for each in drawn) / 1e6
            for name, length, _, width in bars:
                self.assertLess(abs(length / span * 884 - width), 0.85, name)  # the gap, or the least width
            self.assertFalse([each for each in picture.iter(f"{SVG}rect") if each.get("stroke")])
            # Two bars of one row never cover each other by more than the least width.
            for one, other in zip(bars, bars[1:]):
                if one[2] < other[2]:
                    self.assertLess(one[2] + one[3] - other[2], 0.31, (one, other))

    def test_times_of_a_timeline_count_from_its_first_bar(self):
        """Where steps overlap, the events of one begin late."""
        path = self.trace("run.json", "plain")
        picture = sorted(self.bars(self.timeline(path)))
        later = re.sub(r'"ts":(\d+)', lambda ts: f'"ts":{int(ts.group(1)) + 7_000_000}', path.read_text())
        path.write_text(later)
        self.assertEqual(picture, sorted(self.bars(self.timeline(path))))

    def test_a_part_of_a_step_has_wider_bars_and_more_numbers(self):
        path = self.trace("run.json", "interleaved")
        whole, part = self.timeline(path), self.timeline(path, "A part", "--from", 100, "--to", 200)
        self.assertEqual("A part", part.find(f"{SVG}title").text)
        self.assertLess(len(list(self.bars(part))), len(list(self.bars(whole))))
        self.assertGreater(max(bar[3] for bar in self.bars(part)), 3 * max(bar[3] for bar in self.bars(whole)))
        labels = [each.text for each in part.iter(f"{SVG}text")]
        self.assertIn("100 ms", labels)
        self.assertIn("200 ms", labels)

    def test_the_picture_of_accuracy_is_that_of_its_table(self):
        loader = importlib.machinery.SourceFileLoader("accuracy", str(ROOT / "tools/accuracy"))
        accuracy = importlib.util.module_from_spec(importlib.util.spec_from_loader("accuracy", loader))
        sys.dont_write_bytecode = True
        loader.exec_module(accuracy)
        with open(accuracy.FOLDER / "accuracy.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        text = "\n".join(accuracy.Plot(rows).lines())
        self.assertEqual((accuracy.FOLDER / "accuracy.svg").read_text(encoding="utf-8"), text)
        picture = xml.etree.ElementTree.fromstring(text)
        self.assertIn(f"{len(rows)} published training runs", picture.find(f"{SVG}title").text)
        marks = [each for each in picture.iter() if each.find(f"{SVG}title") is not None and each is not picture]
        self.assertEqual({row["id"] for row in rows}, {each.find(f"{SVG}title").text.split(":")[0] for each in marks})
        intervals = [each for each in picture.iter(f"{SVG}line") if each.get("stroke-opacity")]
        self.assertEqual(len(rows), len(intervals))


unittest.main(verbosity=1)
