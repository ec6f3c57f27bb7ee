"""The claims of both papers, each with its chapter and the sub-claims that decide it.

Statements are in our words; ids are used all over the book.
"""

from __future__ import annotations

from lib.claims import Claim
from lib.ledger import analogy, arms, bridge, collapse, functors, mechanism, models
from lib.ledger import price as language
from lib.ledger.arms import grid, skill
from lib.ledger.collapse import LAST, LEARNED, arm, final, halves, lemma, live, long

__all__ = [
    "LAST", "LEARNED", "LEDGER", "arm", "final", "grid", "halves", "lemma", "live", "long", "skill",
]  # fmt: skip

STATEMENTS = {
    "A1": "A decoder-only transformer that solves logic problems in context fails when the queried name "
    "is unseen, and when all names are",
    "A2": "It does not write unseen names: seen ones stand in their place, or nothing does",
    "A3": "While it trains, the (un)embedding rows of unseen names become nearly one vector",
    "A4": "Gradient descent with decay and bounded features brings unembedding rows of labels that "
    "never occur closer at every step",
    "A5": "Tying makes it worse: two unseen names can no longer be told apart on input either",
    "A6": "Copy attention and diverse data mend one unseen name, not all unseen",
    "A7": "More distinct training names help",
    "A8": "A frozen (un)embedding and diverse data solve all-unseen, with or without copy attention",
    "A9": "Active forgetting with copy attention solves all-unseen",
    "A10": "A copy path and the absence of collapse are both needed",
    "A11": "So the copying change of Boix-Adserà et al. fails with several unseen names",
    "A12": "So the forgetting of Anand et al. works",
    "A13": "Reserved unused tokens of Gemma 3 have far more similar rows than used ones, more so in "
    "smaller models",
    "A14": "Fine-tuning Gemma 3 with unused tokens as symbols takes about ten times the steps",
    "A15": "The cure has a price in language modelling, and learning after a reset can collapse again",
    "B1": "Memorising comes first, then composition out of distribution, then analogy",
    "B2": "More entities: analogy comes later",
    "B3": "Few relations: no analogy; very many: it can come and go",
    "B4": "Too many held-out analogies: it fails",
    "B5": "Moderate weight decay speeds analogy up; too much prevents it and leaves composition",
    "B6": "Larger batches help",
    "B7": "Wider or deeper is not better under default settings; a learning-rate sweep can recover depth",
    "B8": "The Dirichlet energy of matching entities falls before analogies come right",
    "B9": "The functor's attention to the source rises before the answers are right",
    "B10": "Target minus source becomes parallel to the functor",
    "B11": "Weight norms alone do not explain it",
    "B12": "In context in Gemma 2: over layers the energy falls and the target's probability rises",
    "B13": "The same in LLaMA and for several numbers of entities",
    "B14": "A linear probe finds the answer in earlier layers than the logit lens",
    "B15": "An imperfect isomorphism hurts; several functors work; an implicit functor is harder",
    "B16": "Prompts can mislead: arithmetic short cuts, tokenisation, entity markers",
    "B17": "Analogies in natural language show the same trend",
    "B18": "Entities regroup by relational role over training",
    "C1": "Bounded features and small steps suffice: gradient descent brings unembedding rows of labels "
    "that never occur closer at every step, also without decay, and however likely they are",
    "C2": "A few rows with logit + log(K/R) can stand for thousands of names that never occur; leaving the "
    "names out gives another loss",
    "C3": "Tokens with collapsed rows cannot be copied, in a toy and in Gemma; rows drawn like used ones "
    "mend it, untrained",
    "C4": "Collapse hurts by degrees: unseen rows that share a direction in part, or are too short, cost "
    "answers long before they are one vector",
    "C5": "In the analogy task the last relation alone fixes a composition's answer up to the category",
    "C6": "Low energy is not enough for analogy, and in the input rows of an untied model not needed",
    "C7": "What decay does to analogy hangs on the optimiser: one number means different things in AdamW "
    "and in Adam with L2",
    "C8": "What cures unseen names, freezing or resetting all rows, prevents analogy",
    "C9": "Rows that no batch has used, redrawn again and again, keep unseen names usable, let analogy "
    "emerge, and cost a language model little",
    "C10": "Rows redrawn before fine-tuning make unused tokens as quick to learn as words",
    "C11": "One-to-one relations between words are nearly one translation in Gemma, and adding it moves the answer",
    "C12": "Rows aligned by hand before training bring held-out analogies sooner",
    "C13": "The source's value says which answer; attention only has to have the right amount",
    "C14": "The mean e_t - e_s carries over: added to another source it turns answers into their partners",
}
TESTED = {
    "A1": ("unseen/02_a_small_transformer", collapse.A1),
    "A2": ("unseen/02_a_small_transformer", collapse.A2),
    "A3": ("unseen/03_watching_the_collapse", collapse.A3),
    "A4": ("unseen/04_the_collapse_lemma", collapse.A4),
    "A5": ("unseen/03_watching_the_collapse", collapse.A5),
    "A6": ("unseen/05_copying_is_not_enough", arms.A6),
    "A7": ("unseen/05_copying_is_not_enough", arms.A7),
    "A8": ("unseen/06_freezing_and_forgetting", arms.A8),
    "A9": ("unseen/06_freezing_and_forgetting", arms.A9),
    "A10": ("unseen/05_copying_is_not_enough", arms.A10),
    "A11": ("unseen/05_copying_is_not_enough", arms.A11),
    "A12": ("unseen/06_freezing_and_forgetting", arms.A12),
    "A13": ("unseen/09_the_unused_tokens_of_gemma", models.A13),
    "A14": ("unseen/09_the_unused_tokens_of_gemma", models.A14),
    "A15": ("unseen/08_the_price", language.A15),
    "B1": ("analogy/02_three_phases", analogy.B1),
    "B2": ("analogy/03_what_it_depends_on", analogy.B2),
    "B3": ("analogy/03_what_it_depends_on", analogy.B3),
    "B4": ("analogy/03_what_it_depends_on", analogy.B4),
    "B5": ("analogy/03_what_it_depends_on", analogy.B5),
    "B6": ("analogy/03_what_it_depends_on", analogy.B6),
    "B7": ("analogy/03_what_it_depends_on", analogy.B7),
    "B8": ("analogy/04_alignment", analogy.B8),
    "B9": ("analogy/05_applying_the_functor", analogy.B9),
    "B10": ("analogy/05_applying_the_functor", analogy.B10),
    "B11": ("analogy/03_what_it_depends_on", analogy.B11),
    "B12": ("analogy/07_functors_in_gemma", functors.B12),
    "B13": ("analogy/07_functors_in_gemma", functors.B13),
    "B14": ("analogy/05_applying_the_functor", (*mechanism.B14, *functors.B14)),
    "B15": ("analogy/06_variants", analogy.B15),
    "B16": ("analogy/07_functors_in_gemma", functors.B16),
    "B18": ("analogy/02_three_phases", analogy.B18),
    "C1": ("unseen/04_the_collapse_lemma", bridge.C1),
    "C2": ("bridge/01_one_collapse_two_papers", bridge.C2),
    "C3": ("unseen/09_the_unused_tokens_of_gemma", models.C3),
    "C4": ("unseen/07_repair_without_training", bridge.C4),
    "C5": ("analogy/03_what_it_depends_on", mechanism.C5),
    "C6": ("analogy/04_alignment", bridge.C6),
    "C7": ("analogy/03_what_it_depends_on", bridge.C7),
    "C10": ("unseen/09_the_unused_tokens_of_gemma", models.C10),
    "C11": ("analogy/07_functors_in_gemma", functors.C11),
    "C12": ("analogy/04_alignment", mechanism.C12),
    "C13": ("analogy/05_applying_the_functor", mechanism.C13),
    "C14": ("analogy/05_applying_the_functor", mechanism.C14),
}
# claims of which nothing, or only a part, can be tested here, and why
WHY_NOT = {
    "A13": "whether smaller models show it more; the other sizes of Gemma 3 cannot be had here",
    "B12": "Gemma 2 with 2 and 9 billion parameters; its weights have to be asked for, so that Gemma 3 270M "
    "stands in their place",
    "B13": "LLaMA itself; SmolLM2 135M, of the same architecture, stands in its place",
    "B17": "E-KAR, its benchmark, cannot be had here; C11 asks relations between words of our own",
    "C8": "its chapter is to come",
    "C9": "its runs are to come",
}
SOURCES = {"A": "A", "B": "B", "C": "ours"}
LEDGER = tuple(
    Claim(id, SOURCES[id[0]], statement, chapter, subclaims, WHY_NOT.get(id))
    for id, statement in STATEMENTS.items()
    for chapter, subclaims in [TESTED.get(id, (None, ()))]
)
