import random
from typing import Any

import pytest

from proofs import kills
from proofs.mutants import mutation, probes
from proofs.mutants.mutation import Mutant, judge, originals, variant
from proofs.mutants.planted import check, mutants, theorems
from proofs.mutants.probes import ConcreteProbe

RNE = probes.encode("e4m3", "rne")
TIE = "(rest >> 1) + (kept & 1)"


def test_there_are_enough_and_their_names_differ() -> None:
    names = [theorem.name for theorem in theorems()]
    assert len(names) == len(set(names))
    assert sum(mutant.fate != "equivalent" for mutant in mutants()) >= 100
    assert {mutant.module for mutant in mutants()} == set(mutation.ORDER)


def test_what_is_not_plainly_refuted_has_a_reason() -> None:
    assert all(mutant.reason for mutant in mutants() if mutant.fate != "refuted")


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: f"{mutant.module}-{mutant.name}")
def test_a_change_has_exactly_one_place_to_go(mutant: Any) -> None:
    assert mutation.source(mutant.module).count(mutant.old) == 1
    assert mutant.old != mutant.new


def test_a_change_without_a_place_is_an_error() -> None:
    outcome = check(Mutant("pack", "nowhere", "no such text", "", RNE))
    assert outcome.verdict == "error"
    with pytest.raises(ValueError, match="occurs 3 times"):
        variant("convert", "SCALE_NAN", "")


def test_modules_without_a_change_compute_what_the_real_ones_do() -> None:
    same = variant("pack", TIE, TIE)
    assert judge(Mutant("pack", "same", TIE, TIE, RNE))[0] == "equivalent"
    assert RNE.build(same) is not RNE.build(originals())


def test_a_change_reaches_the_modules_that_import_it() -> None:
    changed = RNE.build(variant("pack", TIE, "(rest >> 1) + 1"))
    halfway = 0x3F880000  # 1.0625, halfway between 1 and 1.125
    assert RNE.build(originals())(halfway, 127, 0) == 0x38
    assert changed(halfway, 127, 0) == 0x39


def test_a_wrong_declaration_is_noticed() -> None:
    wrong = Mutant("pack", "tie", TIE, "(rest >> 1) + 1", RNE, "equivalent")
    assert check(wrong).verdict == "refuted"
    harmless = Mutant("unpack", "or", "fraction | IMPLICIT", "fraction + IMPLICIT", RNE, "refuted")
    assert check(harmless).verdict == "refuted"


def test_a_reference_that_blames_the_original_is_an_error() -> None:
    blaming = probes.Probe(RNE.name, RNE.build, RNE.inputs, RNE.word, lambda *_: False)
    outcome = check(Mutant("pack", "tie", TIE, "(rest >> 1) + 1", blaming))
    assert outcome.verdict == "error"
    assert "rejects" in outcome.detail
    praising = probes.Probe(RNE.name, RNE.build, RNE.inputs, RNE.word, lambda *_: True)
    assert "as right as" in check(Mutant("pack", "tie", TIE, "(rest >> 1) + 1", praising)).detail


@pytest.mark.parametrize("name", ["pack/rne-tie-away", "pack/sign-bit-of-word", "pack/rne-parity-of-significand-e4m3"])
def test_fates(name: Any) -> None:
    (mutant,) = (mutant for mutant in mutants() if f"{mutant.module}/{mutant.name}" == name)
    assert check(mutant).verdict == "proved"


def test_the_generator_reference_gives_its_authors_known_answers() -> None:
    zeros, ones = (0,) * 6, (0xFFFFFFFF,) * 6
    assert probes.philox_reference(zeros) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert probes.philox_reference(ones) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)


@pytest.mark.parametrize(
    "probe", {mutant.probe.name: mutant.probe for mutant in mutants()}.values(), ids=lambda p: p.name
)
def test_the_real_kernels_satisfy_the_exact_references(probe: Any) -> None:
    kernel = probe.build(originals())
    if isinstance(probe, ConcreteProbe):
        assert all(probe.correct(kernel(*values), *values) for values in probe.candidates)
        return
    rng = random.Random(probe.name)
    for _ in range(200):
        values = []
        for entry in probe.inputs:
            end = entry.end or 1 << (entry.bits - entry.signed)
            magnitude = rng.choice([rng.randrange(end), rng.randrange(min(end, 64)), end - 1])
            values.append(magnitude | rng.getrandbits(1) << (entry.bits - 1) if entry.signed else magnitude)
        found = kernel(*probe.arguments(values)) % (1 << probe.word)
        assert probe.correct(found, *values), [hex(value) for value in values]


def test_what_is_recorded_as_noticed_is_planted_and_no_family_of_the_definition_is_idle() -> None:
    planted = {f"{mutant.module}/{mutant.name}" for mutant in mutants() if mutant.fate != "equivalent"}
    noticed = kills.read()
    assert all(set(names) <= planted for names in noticed.values())
    own = {"factors", "float-definition", "fused", "products", "stacks"}  # other mutants test these
    assert {kills._family(theorem) for theorem in kills._stated()} - own == set(noticed)
    assert all(noticed.values())


def test_a_planted_mutant_is_noticed_and_removed() -> None:
    by_name = {f"{mutant.module}/{mutant.name}": mutant for mutant in mutants()}
    assert kills.noticing(by_name["scale/ceil-bumps-powers"]) != []
    # The mutant is equivalent to the original, so no theorem can notice it.
    assert kills.noticing(by_name["scale/zero-not-special"]) == []
    assert RNE.build(originals())(0x3F880000, 127, 0) == 0x38
    with kills.planted(by_name["pack/rne-tie-away"]):
        assert RNE.build(originals())(0x3F880000, 127, 0) == 0x39
    assert RNE.build(originals())(0x3F880000, 127, 0) == 0x38
