"""Checks for the exercises: call one on your own function, and it says what is probably wrong.

A check returns a sentence. It begins with "Right" when the function passes, with "Not yet" else; it
never raises for a wrong answer, so that a chapter runs from top to bottom with nothing solved.
"""

from lib.exercises.analogy import (
    check_best_share,
    check_carries_over,
    check_direction,
    check_ends,
    check_lead,
    check_sustained,
)
from lib.exercises.bridge import check_mass_of_names, check_rows_to_refresh
from lib.exercises.models import check_can_be_translation, check_scores_of_known
from lib.exercises.unseen import (
    check_copy_logits,
    check_draws,
    check_kind,
    check_mean_cosine,
    check_perplexity,
    check_rows_met,
    check_solve,
    check_steps_until,
)

__all__ = [
    "check_solve",
    "check_kind",
    "check_mean_cosine",
    "check_steps_until",
    "check_copy_logits",
    "check_draws",
    "check_perplexity",
    "check_rows_met",
    "check_scores_of_known",
    "check_carries_over",
    "check_sustained",
    "check_lead",
    "check_direction",
    "check_ends",
    "check_best_share",
    "check_can_be_translation",
    "check_mass_of_names",
    "check_rows_to_refresh",
]
