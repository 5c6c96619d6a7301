#!/usr/bin/env python3
"""What tools/fit-published makes of runs: its optimum is one, what is held stays, intervals are as wide as they say.

Arguments: the program, which is not run, and the source tree.
"""

import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    sys.exit(77)

sys.argv.pop(1)
ROOT = pathlib.Path(sys.argv.pop(1)).resolve()

sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("fit_published", str(ROOT / "tools/fit-published"))
fit = importlib.util.module_from_spec(importlib.util.spec_from_loader("fit_published", LOADER))
LOADER.exec_module(fit)

TABLE = ROOT / "tests/validation/published_runs.csv"
SOFTWARE = "megatron-2023"


class World:
    """Predicts by powers of the figures, so that the derivatives are exact."""

    def __init__(self, printed, figures, truth, folder):
        self.printed, self.folder = printed, folder
        chips = fit.chip_of_accelerator()
        self.power = np.zeros((len(printed), len(figures.names)))
        for i, row in enumerate(printed):
            of = fit.OF_SET[row["set"]], chips[row["accelerator"]]
            for j, (software, chip, _) in enumerate(figures.names):
                if software == of[0] and chip in (None, of[1]):
                    self.power[i, j] = ((7 * i + 3 * j) % 11 - 5) / 10
        self.measured = np.exp(self.power @ truth)

    def rows(self, _, theta):
        predicted = np.exp(self.power @ theta)
        return [{"id": r["id"], "set": r["set"], "predicted_s": p, "measured_s": m}
                for r, p, m in zip(self.printed, predicted, self.measured)]


class Fits(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(7)

    def test_a_step_ends_where_nothing_pulls_and_moves_only_what_is_free(self):
        runs, figures = 40, 6
        J = self.random.normal(size=(runs, figures))
        residual = self.random.normal(scale=0.2, size=runs)
        theta = self.random.normal(size=figures)

        class Priors:
            prior = np.zeros(figures)
            precision = np.diag(self.random.uniform(1, 9, figures)) + 0.5

        weight, keep = self.random.uniform(0.2, 1, runs), self.random.uniform(size=runs) < 0.8
        free = np.array([True, True, False, True, False, True])
        d, spread = fit.step_to(residual, J, theta, Priors, weight, keep, free)
        e = (residual + J @ d)[keep] / fit.SIGMA
        pull = J[keep].T @ (weight[keep] * e / np.sqrt(1 + e * e)) / fit.SIGMA
        pull += Priors.precision @ (theta + d - Priors.prior)
        self.assertLess(np.max(np.abs(pull[free])), 1e-3)
        self.assertTrue(np.all(d[~free] == 0) and np.all(spread[~free] == 0))
        self.assertTrue(np.all(spread[free] > 0))

    def test_figures_that_made_the_runs_are_found_and_other_software_stays(self):
        printed = fit.read_runs(TABLE)
        own = [r for r in printed if fit.OF_SET[r["set"]] == SOFTWARE]
        figures = fit.Figures(printed, SOFTWARE)
        mine = np.array([name[0] == SOFTWARE for name in figures.names])
        truth = figures.prior + 0.3 * mine * self.random.normal(size=len(mine))
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            world = World(own, figures, truth, pathlib.Path(folder))
            found = fit.Fit(world, figures, own, 4, figures.prior.copy())
        self.assertTrue(np.all(found.theta[~mine] == figures.prior[~mine]))
        before = np.abs(fit.log_errors(world.rows(figures, figures.prior)))
        after = np.abs(fit.log_errors(world.rows(figures, found.theta)))
        self.assertLess(after.mean(), 0.1 * before.mean())

    def test_intervals_are_as_wide_as_other_groups_need(self):
        groups = np.repeat(np.arange(12), 15)
        ratios = list(np.exp(0.1 * self.random.normal(size=12)[groups] + 0.02 * self.random.normal(size=180)))
        sets = [f"set {g}" for g in groups]
        low, high, held = fit.interval_of(ratios, sets, sets)
        narrow = fit.bounds(ratios, sets, 0.1)
        self.assertLessEqual(low, narrow[0])
        self.assertGreaterEqual(high, narrow[1])
        inside = np.mean([low <= r <= high for r in ratios])
        self.assertGreaterEqual(inside, held)  # with its own group among those that made it, it holds no less
        self.assertGreaterEqual(held, 0.8)

    def test_runs_of_one_size_are_left_out_together(self):
        sizes = {}
        for row in fit.read_runs(TABLE):
            sizes.setdefault(fit.size_of(row), set()).add(row["set"])
        self.assertGreater(max(len(sets) for sets in sizes.values()), 2)
        for size, sets in sizes.items():
            if size.startswith(("ievo", "simu")):
                self.assertEqual(1, len(sets))


if __name__ == "__main__":
    unittest.main()
