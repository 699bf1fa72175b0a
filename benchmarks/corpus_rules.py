"""Which rules name each bug of the corpus, by judgement: the best first. Controls have none."""

from __future__ import annotations

MISSING, EXTRA, SCALE, SHARD = "missing-reduction", "extra-reduction", "wrong-scale", "wrong-shard"
GRADIENT, GROUP, OTHER = "gradient-not-reduced", "wrong-group", "wrong-relation"
EARLY, PRECISION = "nonlinear-on-partial", "lower-precision"

_BY_RULES: dict[tuple[str, ...], str] = {
    (MISSING, EARLY): "CLP-01 CLP-07 FWD-07 DTN-02",
    (MISSING,): "FWD-04 SCL-24",
    (MISSING, "dead-collective"): "GRD-11",
    (EXTRA, SCALE): "CLP-03 CLP-09 FWD-05 SCL-09 GRD-13 GRD-17",
    (EXTRA,): "FWD-03",
    (OTHER, MISSING): "CLP-04",
    (EARLY, SCALE, OTHER): "SCL-01 STA-01",
    (
        SCALE,
    ): "FWD-08 FWD-09 GRD-02 SCL-11 SCL-12 SCL-13 SCL-15 SCL-16 SCL-17 SCL-20 SCL-21 SCL-23 SCL-26 SCL-27 SCL-28 SCL-29 OPT-03",
    (GRADIENT, MISSING): "GRD-01 GRD-03 GRD-04 GRD-06 GRD-10 GRD-12 GRD-19 GRD-20 GRD-21 GRD-22 GRD-23 VOC-03 VOC-04",
    (
        SHARD,
        OTHER,
    ): "FWD-10 LAY-01 LAY-02 LAY-03 LAY-04 LAY-06 LAY-09 LAY-11 POS-01 POS-02 POS-03 POS-04 POS-05 POS-11 VOC-05",
    (GROUP, SHARD): "FWD-12 RUN-05",
    (OTHER,): "LAY-14 POS-10 RNG-02",
    (OTHER, EXTRA): "VOC-02",
    (PRECISION, MISSING): "OPT-04",
    (MISSING, GRADIENT, "dead-collective", PRECISION): "OPT-05",
}
RULES: dict[str, tuple[str, ...]] = {case: rules for rules, cases in _BY_RULES.items() for case in cases.split()}
