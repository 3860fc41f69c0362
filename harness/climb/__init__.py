"""A climb: one model on every rung of a frozen suite, its report card, and the reference models beside it."""
