from fcforge.evaluation.generator_quality import summary as paper
from fcforge.generators import GENERATORS
from fcforge.models import MODELS


def test_numbers_are_those_of_the_appendix() -> None:
    assert paper.published("gcn", "fcm_vae") == "0.783 / 0.776 / 0.775 / 0.771"
    assert paper.published("gae", "w/o SGE") == "0.734 / 0.782 / 0.658 / 0.706"
    assert paper.published("linear", "fcm_vae") == "–"


def test_every_cell_of_both_tables_is_there_and_nothing_else() -> None:
    classifiers = {"gae", "gat", "gcn", "sage", "graph_transformer"}
    assert classifiers <= set(MODELS)
    generators = {"regate", "brainnetgan", "gr_spd_gan", "fcm_vae"}
    assert generators <= set(GENERATORS)
    rows = {"real", *generators, "w/o node feature", "w/o LAE", "w/o SGE"}
    assert set(paper._printed()) == {(c, r) for c in classifiers for r in rows}
