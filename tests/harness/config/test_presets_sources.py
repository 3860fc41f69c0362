"""Each preset of a paper against what the paper or its public code says: where, what, and who says it.

A point that is not met stands in the preset's `source`, and the second table holds those sentences.
"""

from operator import attrgetter
from typing import Any, NamedTuple

import pytest

from chomsky_ladder.harness.config.protocols import PROTOCOLS, preset_run, with_model
from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.models.backbone import Backbone


class Point(NamedTuple):
    """A setting of the preset's run for each of the tasks and models, or one of the protocol itself."""

    protocol: str
    setting: str
    value: Any
    source: str
    tasks: str = "parity mod_arithmetic"
    models: str = "lstm"


MODULAR = "mod_arithmetic mod_arithmetic_brackets"
WORDS = "word_problem"
HIDDEN = "hidden_states"
RECALL = "in_context_recall noisy_in_context_recall fuzzy_in_context_recall"
ALL_TASKS = {name: " ".join(protocol.table) for name, protocol in PROTOCOLS.items()}
TERMINATED = "stack_manipulation binary_addition binary_multiplication"
RECURRENT = "rnn lstm gru stack_rnn tape_rnn"
VASWANI = "Vaswani et al. 2017; models/transformer.py of the public code"
DEFAULTS = "defaults of the package; the yamls set only the heads"

POINTS = [
    # Deletang et al. 2022 and google-deepmind/neural_networks_chomsky_hierarchy
    Point("deepmind", "version", 2, "the first had brackets without '*' and other networks"),
    Point("deepmind", "reports", "best", "paper, table 1: the maximum over seeds"),
    Point("deepmind", "measure", "raw", "paper: accuracy averaged over lengths"),
    Point("deepmind", "solved", 0.9, "paper: solved from .90"),
    Point("deepmind", "seeds", 10, "paper"),
    Point("deepmind", "rates", (1e-4, 3e-4, 5e-4), "paper"),
    Point("deepmind", "train.steps", 1_000_000, "paper"),
    Point("deepmind", "train.batch", 128, "training/example.py"),
    Point("deepmind", "train.lengths", (1, 40), "training/example.py: UniformCurriculum"),
    Point("deepmind", "train.lengths_per", "batch", "training/training.py: a length is drawn each step"),
    Point("deepmind", "train.betas", (0.9, 0.999), "optax.adam"),
    Point("deepmind", "train.eps", 1e-8, "optax.adam"),
    Point("deepmind", "train.weight_decay", 0.0, "optax.adam"),
    Point("deepmind", "train.clip", 1.0, "training/training.py: max_grad_norm"),
    Point("deepmind", "train.schedule", "constant", "optax.adam of one rate"),
    Point("deepmind", "train.warmup", 0.0, "optax.adam of one rate"),
    Point("deepmind", "train.precision", "fp32", "jax"),
    Point("deepmind", "train.loss_over", "slots", "example.py: the mean over all outputs", ALL_TASKS["deepmind"]),
    Point("deepmind", "task.blank_answer", 3, "tasks: padded by zeros", "stack_manipulation"),
    Point("deepmind", "task.blank_answer", 1, "tasks: padded by zeros", "binary_addition binary_multiplication"),
    Point("deepmind", "task.padding", "none", "accuracy_mask", "binary_addition binary_multiplication"),
    Point("deepmind", "task.every_length", True, "lengths from 1", "missing_duplicate solve_equation " + TERMINATED),
    Point("deepmind", "task.count", "input", "lengths are of the input", ALL_TASKS["deepmind"]),
    Point("deepmind", "task.query", "token", "utils.py: an empty token an answer", ALL_TASKS["deepmind"]),
    Point("deepmind", "task.operators", "+-*", "constants.py: mult=True", MODULAR),
    Point("deepmind", "task.operators", "+-", "solve_equation.py: mult=False", "solve_equation"),
    Point("deepmind", "task.num_symbols", 5, "bucket_sort.py", "bucket_sort"),
    Point(
        "deepmind",
        "task.num_symbols",
        2,
        "bits",
        "reverse_string missing_duplicate odds_first duplicate_string stack_manipulation",
    ),
    Point("deepmind", "task.push", 2, "POP, PUSH 0 and PUSH 1 are equally likely", "stack_manipulation"),
    Point("deepmind", "task.end", "token", "the terminator", "stack_manipulation"),
    Point("deepmind", "eval.lengths", (41, 500), "paper", ALL_TASKS["deepmind"]),
    Point("deepmind", "eval.test", 512 * 460, "range_test_total_batch_size, of 460 lengths"),
    Point("deepmind", "eval.lengths_by", "turn", "range_evaluation.py: as many of each length"),
    Point("deepmind", "eval.score", "lengths", "example.py: the mean over lengths"),
    Point("deepmind", "model.num_blocks", 1, "rnn.py: one core", models=RECURRENT),
    Point("deepmind", "model.d_model", 256, "example.py: hidden_size", models=RECURRENT),
    Point("deepmind", "model.before_head", "relu", "rnn.py: jnn.relu(output)", models=RECURRENT),
    Point("deepmind", "model.final_norm", "none", "rnn.py", models=RECURRENT + " encoder"),
    Point("deepmind", "model.activation", "relu", "hk.VanillaRNN", models="rnn"),
    Point("deepmind", "model.core", "relu", "constants.py: inner_core=hk.VanillaRNN", models="stack_rnn tape_rnn"),
    Point("deepmind", "model.forget_bias", 1.0, "hk.LSTM: f + 1"),
    Point("deepmind", "model.stack_cell", 8, "paper", models="stack_rnn"),
    Point("deepmind", "model.tape_cell", 8, "example.py: memory_cell_size", models="tape_rnn"),
    Point("deepmind", "model.tape_cells", 40, "example.py: memory_size", models="tape_rnn"),
    Point("deepmind", "model.jump", "input", "tape_rnn.py: TapeInputLengthJumpCore", models="tape_rnn"),
    Point("deepmind", "model.write_width", 64, "tape_rnn.py: mlp_layers_size", models="tape_rnn"),
    Point("deepmind", "model.num_blocks", 5, "num_layers", models="encoder"),
    Point("deepmind", "model.d_model", 64, "embedding_dim", models="encoder"),
    Point("deepmind", "model.num_heads", 8, "num_heads", models="encoder"),
    Point("deepmind", "model.dropout", 0.1, "dropout_prob", models="encoder"),
    Point("deepmind", "model.positions", "sinusoidal", "positional_encodings: SIN_COS", models="encoder"),
    Point("deepmind", "model.norm", "layer", VASWANI, models="encoder"),
    Point("deepmind", "model.norm_place", "post", VASWANI, models="encoder"),
    Point("deepmind", "model.feed_forward", "relu", VASWANI, models="encoder"),
    Point("deepmind", "model.inner_width", 256, "widening_factor: 4", models="encoder"),
    Point("deepmind", "model.before_head", "none", "transformer.py: a linear layer", models="encoder"),
    # The public code beside Beck et al. 2024, NX-AI/xlstm
    Point("xlstm_code", "version", 2, "the first had the paper's sLSTM"),
    Point("xlstm_code", "measure", "raw", "metrics.py: accuracy"),
    Point("xlstm_code", "table", ("parity", "even_pairs", "cycle_nav", "mod_arithmetic"), "experiments/data"),
    Point("xlstm_code", "rates", (1e-3,), "lr"),
    Point("xlstm_code", "seeds", 1, "seed"),
    Point("xlstm_code", "train.steps", 20_000, "num_steps"),
    Point("xlstm_code", "train.batch", 256, "batch_size"),
    Point("xlstm_code", "train.warmup", 0.1, "lr_warmup_steps: 2000"),
    Point("xlstm_code", "train.lr_final", 1e-6, "lr_decay_factor: 0.001"),
    Point("xlstm_code", "train.weight_decay", 0.1, "weight_decay"),
    Point("xlstm_code", "train.betas", (0.9, 0.999), "torch's AdamW"),
    Point("xlstm_code", "train.clip", 0.0, "main.py clips nothing"),
    Point("xlstm_code", "train.precision", "bf16", "amp_precision"),
    Point("xlstm_code", "train.lengths", (3, 40), "min_ and max_sequence_length"),
    Point("xlstm_code", "eval.lengths", (40, 256), "subpar", "parity even_pairs cycle_nav", "lstm xlstm"),
    Point("xlstm_code", "eval.lengths", (39, 256), "modular_arithmetic.py", "mod_arithmetic", "lstm xlstm"),
    Point("xlstm_code", "eval.test", 8192, "count"),
    Point("xlstm_code", "model.d_model", 64, "embedding_dim", models="xlstm lstm"),
    Point("xlstm_code", "model.num_blocks", 2, "num_blocks", models="xlstm lstm"),
    Point("xlstm_code", "model.num_heads", 1, "num_heads", models="xlstm"),
    Point("xlstm_code", "model.conv", "causal4", DEFAULTS, models="xlstm"),
    Point("xlstm_code", "model.recurrent_init", "zeros", DEFAULTS, models="xlstm"),
    Point("xlstm_code", "model.ends_init", "small", "small_init_init_ of both", models="xlstm lstm"),
    # Walker et al. 2025 and its public code, structured-linear-cdes
    Point("slice", "version", 3, "the first supervised every prefix, the second counted the answer as a symbol"),
    Point("slice", "task.count", "input", "fl_tasks: length symbols, and the answer at the last", ALL_TASKS["slice"]),
    Point("slice", "eval.lengths", (39, 256), "mod_arith_no_brack.py: 40 symbols with the =", "mod_arithmetic"),
    Point("slice", "measure", "raw", "train.py: accuracy"),
    Point("slice", "reports", "mean", "PD-SSM, table 2: mean and deviation of 5 seeds"),
    Point("slice", "seeds", 5, "paper"),
    Point("slice", "task.supervision", "final", "dataloaders.py: the mask", ALL_TASKS["slice"]),
    Point("slice", "train.steps", 100_000, "num_steps"),
    Point("slice", "train.batch", 256, "batch_size"),
    Point("slice", "train.betas", (0.9, 0.999), "torch's AdamW"),
    Point("slice", "train.weight_decay", 0.01, "weight_decay_others"),
    Point("slice", "train.decayed", "all_but_embedding", "train.py: two groups"),
    Point("slice", "train.warmup", 0.1, "warmup_fraction"),
    Point("slice", "train.lr", 2e-3, "learning_rate of bdlncde_cycle_nav.json"),
    Point("slice", "train.lr_final", 1e-5, "final_lr"),
    Point("slice", "train.clip", 0.0, "train.py clips nothing"),
    Point("slice", "train.stop_after", 1, "early_stop_threshold"),
    Point("slice", "train.stop_above", 0.9995, "early_stop_threshold"),
    Point("slice", "eval.lengths", (40, 256), "run_experiment", "parity even_pairs cycle_nav"),
    Point("slice", "eval.validation", 8192, "num_samples"),
    Point("slice", "eval.every", 5000, "print_steps"),
    Point("slice", "model.num_blocks", 2, "num_blocks", models="slice"),
    Point("slice", "model.d_model", 128, "model_dim", models="slice"),
    Point("slice", "model.dropout", 0.01, "dropout_rate", models="slice lstm"),
    Point("slice", "model.block_size", 4, "block_size", models="slice"),
    Point("slice", "model.mixer", "tanh", "use_glu: false", models="slice"),
    Point("slice", "model.input_at", "first", "slcde.py: init_layer, and no vf_B", models="slice"),
    Point("slice", "model.norm_penalty", 0.001, "vf_A_norm_lambda", models="slice"),
    # van der Poel et al. 2024 and heinz-jeffrey/subregular-learning
    Point("mlregtest", "measure", "raw", "accuracy", "mlregtest"),
    Point("mlregtest", "train.lengths", (20, 29), "data-gen.py: ss_min_len, ss_max_len", "mlregtest"),
    Point("mlregtest", "eval.lengths", (20, 50), "data-gen.py: ls_max_len", "mlregtest"),
    Point("mlregtest", "eval.bins", (20, 29, 50), "the short and the long sets", "mlregtest"),
    Point("mlregtest", "train.batch", 64, "main.py: batch_size", "mlregtest"),
    Point("mlregtest", "train.steps", 100_000, "64 epochs of 100,000 strings", "mlregtest"),
    Point("mlregtest", "train.examples", 100_000, "the largest of the three sets", "mlregtest"),
    Point("mlregtest", "train.clip", 0.0, "main.py clips nothing", "mlregtest"),
    Point("mlregtest", "task.count", "input", "lengths are of the string", "mlregtest"),
    Point("mlregtest", "task.negatives", "uniform", "data-gen.py: random.choices", "mlregtest"),
    Point("mlregtest", "model.d_model", 32, "main.py: embed_dim", "mlregtest", "rnn gru"),
    Point("mlregtest", "model.d_model", 256, "main.py: embed_dim", "mlregtest", "lstm transformer"),
    Point("mlregtest", "model.dropout", 0.1, "main.py: dropout", "mlregtest", "rnn gru transformer"),
    Point("mlregtest", "model.dropout", 0.0, "main.py: dropout", "mlregtest", "lstm"),
    Point("mlregtest", "model.num_heads", 2, "model.py", "mlregtest", "transformer encoder"),
    Point("mlregtest", "model.num_blocks", 2, "model.py", "mlregtest", "transformer encoder"),
    Point("mlregtest", "model.max_length", 64, "model.py", "mlregtest", "transformer encoder"),
    # Bouhadjar et al. 2026, as described
    Point("selectiv", "measure", "raw", "accuracy"),
    Point("selectiv", "seeds", 4, "description"),
    Point("selectiv", "rates", (1e-3, 5e-4, 2e-3), "description"),
    Point("selectiv", "train.steps", 3125, "200,000 strings in batches of 64", HIDDEN),
    Point("selectiv", "train.batch", 64, "description", HIDDEN),
    Point("selectiv", "train.warmup", 476 / 3125, "description: 476 steps", HIDDEN),
    Point("selectiv", "train.lr_final", 1e-4, "description: a cosine to .1", HIDDEN),
    Point("selectiv", "train.weight_decay", 0.0, "description: Adam", HIDDEN),
    Point("selectiv", "train.lengths", (400, 400), "task1_complexity.yaml: 200, and train_gap_max .1", HIDDEN),
    Point("selectiv", "eval.lengths", (400, 400), "task1_complexity.yaml: 200, and train_gap_max .1", HIDDEN),
    Point("selectiv", "task.steps", (2, 2), "seq_dataset.py: delay_dur of a gap of .1", HIDDEN),
    Point("selectiv", "task.ends", 1, "grammar_generation.py: len(x) * transition_density", HIDDEN),
    Point("selectiv", "train.clip", 1.0, "train.py: clip_grad_norm_", HIDDEN),
    Point("selectiv", "model.num_heads", 4, "utils.py: get_num_heads", HIDDEN, "transformer"),
    Point("selectiv", "task.symbols", 40, "description: 40 x 40 states", HIDDEN),
    Point("selectiv", "task.ambiguous", 40, "description: 40 x 40 states", HIDDEN),
    Point("selectiv", "task.copies", 40, "description: 40 x 40 states", HIDDEN),
    Point("selectiv", "task.density", 40, "description: a chance of .4", HIDDEN),
    Point("selectiv", "task.starts", 4, "description", HIDDEN),
    Point("selectiv", "model.num_blocks", 8, "description", HIDDEN, "mamba lstm transformer"),
    Point("selectiv", "model.d_state", 128, "description", HIDDEN, "mamba mamba2"),
    Point("selectiv", "model.dropout", 0.2, "description", HIDDEN, "mamba lstm transformer"),
    # Butoi et al. 2024 and rycolab/neural-network-recognizers
    # Poli et al. 2024 and athms/mad-lab
    Point("mad", "measure", "raw", "accuracy"),
    Point("mad", "rates", (5e-4, 1e-4, 1e-3), "mad/configs.py: lrs"),
    Point("mad", "train.steps", 20_000, "mad/configs.py: epochs, batch_size", RECALL + " compression"),
    Point("mad", "train.steps", 400, "memorization.yml: num_train_examples", "memorization"),
    Point("mad", "train.examples", 12_800, "num_train_examples", RECALL + " selective_copying compression"),
    Point("mad", "train.examples", 256, "memorization.yml", "memorization"),
    Point("mad", "train.batch", 128, "batch_size", ALL_TASKS["mad"]),
    Point("mad", "train.lr_final", 1e-6, "min_lr", ALL_TASKS["mad"]),
    Point("mad", "train.precision", "bf16", "precision", ALL_TASKS["mad"]),
    Point("mad", "eval.test", 1280, "num_test_examples", ALL_TASKS["mad"]),
    Point("mad", "eval.lengths", (128, 128), "seq_len", "in_context_recall noisy_in_context_recall"),
    Point("mad", "eval.lengths", (129, 129), "seq_len, and the last answer", "fuzzy_in_context_recall"),
    Point("mad", "eval.lengths", (32, 32), "seq_len", "memorization"),
    Point("mad", "eval.lengths", (257, 257), "selective-copying.yml: 256, and the last answer", "selective_copying"),
    Point("mad", "task.num_symbols", 14, "vocab_size: 16, less two", "selective_copying"),
    Point("mad", "task.data", 16, "num_tokens_to_copy", "selective_copying"),
    Point("mad", "task.noise", "before", "instances.py: insert_indices", "selective_copying"),
    Point("mad", "eval.lengths", (31, 31), "compression.yml: 32, less the marker", "compression"),
    Point("mad", "train.lengths", (31, 31), "compression.yml: 32, less the marker", "compression"),
    Point("mad", "task.num_symbols", 15, "vocab_size: 16, less the marker", "compression"),
    Point("mad", "model.decoder", "plain", "auto_encoder.py: decoder", "compression", "autoencoder"),
    Point("mad", "task.num_keys", 8, "vocab_size, less noise_vocab_size", "in_context_recall noisy_in_context_recall"),
    Point("mad", "task.noise", 20, "frac_noise", "noisy_in_context_recall"),
    Point("mad", "task.num_keys", 7, "vocab_size: 16, less the padding", "fuzzy_in_context_recall"),
    Point("mad", "task.num_keys", 127, "vocab_size: 256, less insert_token", "memorization"),
    Point("mad", "model.d_model", 128, "benchmark.py: dim", ALL_TASKS["mad"], "lstm transformer mamba autoencoder"),
    Point("mad", "model.num_blocks", 2, "benchmark.py: layers", ALL_TASKS["mad"], "lstm transformer mamba autoencoder"),
    Point("flare", "measure", "raw", "accuracy"),
    Point("flare", "reports", "mean", "paper: mean of 10 runs, and their best"),
    Point("flare", "seeds", 10, "paper"),
    Point("flare", "train.lengths", (1, 40), "paper, but for the empty string", ALL_TASKS["flare"]),
    Point("flare", "eval.lengths", (1, 500), "paper, but for the empty string", ALL_TASKS["flare"]),
    Point("flare", "eval.test", 5000, "ten strings a length", ALL_TASKS["flare"]),
    Point("flare", "eval.lengths_by", "turn", "ten strings a length", ALL_TASKS["flare"]),
    Point("flare", "train.examples", 10_000, "paper", ALL_TASKS["flare"]),
    Point("flare", "train.clip", 5.0, "train_and_evaluate.bash: gradient-clipping-threshold", ALL_TASKS["flare"]),
    Point("flare", "params", 64_000, "train_and_evaluate.bash: parameter-budget"),
    Point("flare", "model.num_blocks", 5, "paper", ALL_TASKS["flare"], "rnn lstm transformer"),
    Point("flare", "model.num_heads", 8, "paper", ALL_TASKS["flare"], "transformer"),
    Point("flare", "model.positions", "sinusoidal", "paper", ALL_TASKS["flare"], "transformer"),
    Point("flare", "model.dropout", 0.1, "paper", ALL_TASKS["flare"], "rnn lstm transformer"),
    # Grazzi et al. 2024
    Point("grazzi", "version", 2, "the first clipped everything"),
    Point("grazzi", "reports", "best", "paper, table 3: the best of three"),
    Point("grazzi", "measure", "scaled", "paper"),
    Point("grazzi", "seeds", 3, "paper"),
    Point("grazzi", "rates", (1e-2, 1e-3, 5e-4, 1e-4), "paper"),
    Point("grazzi", "train.steps", 100_000, "paper"),
    Point("grazzi", "train.warmup", 0.1, "paper"),
    Point("grazzi", "train.lr_final", 1e-6, "paper"),
    Point("grazzi", "train.weight_decay", 0.1, "paper", models="lstm mamba delta_net"),
    Point("grazzi", "train.batch", 1024, "paper", models="lstm xlstm mamba"),
    Point("grazzi", "train.clip", 0.0, "paper", "parity", "transformer mamba delta_net xlstm lstm"),
    Point("grazzi", "train.clip", 1.0, "paper", MODULAR, "transformer mamba delta_net"),
    Point("grazzi", "train.clip", 0.0, "paper", MODULAR, "xlstm lstm gated_delta_net"),
    Point("grazzi", "model.d_model", 128, "paper", "parity", "xlstm mamba transformer"),
    Point("grazzi", "model.num_heads", 4, "paper", "parity", "xlstm transformer"),
    Point("grazzi", "model.d_model", 64, "paper", MODULAR, "xlstm"),
    Point("grazzi", "model.num_heads", 1, "paper", MODULAR, "xlstm"),
    Point("grazzi", "model.d_model", 128, "paper", MODULAR, "mamba delta_net transformer"),
    Point("grazzi", "model.num_blocks", 2, "paper", "parity", "xlstm mamba"),
    Point("grazzi", "model.num_blocks", 3, "paper", MODULAR, "xlstm mamba"),
    # Grazzi et al. 2024, appendix E.2
    Point("grazzi_groups", "train.examples", 1_600_000, "appendix E.2", WORDS),
    Point("grazzi_groups", "train.steps", 312_500, "100 epochs", WORDS),
    Point("grazzi_groups", "train.lengths", (32, 32), "appendix E.2", WORDS),
    Point("grazzi_groups", "train.batch", 512, "appendix E.2", WORDS),
    Point("grazzi_groups", "train.weight_decay", 0.01, "appendix E.2", WORDS),
    Point("grazzi_groups", "train.lr", 1e-4, "appendix E.2", WORDS),
    Point("grazzi_groups", "train.clip", 1.0, "appendix E.2", WORDS),
    Point("grazzi_groups", "eval.lengths", (500, 500), "appendix E.2", WORDS),
    Point("grazzi_groups", "eval.test", 40_000, "appendix E.2", WORDS),
    Point("grazzi_groups", "task.count", "input", "lengths are of elements", WORDS),
    # DeltaProduct, automl/DeltaProduct
    Point("delta_product", "train.examples", 100_000, "README: --samples=100000", WORDS),
    Point("delta_product", "train.steps", 4882, "README: --epochs=100", WORDS),
    Point("delta_product", "train.batch", 2048, "README: --batch_size", WORDS),
    Point("delta_product", "train.lr", 1e-3, "README: --lr", WORDS),
    Point("delta_product", "train.lengths", (128, 128), "README: --k", WORDS),
    Point("delta_product", "eval.lengths", (512, 512), "README: --k_test", WORDS),
    Point("delta_product", "eval.test", 100_000, "README: --samples=100000", WORDS),
    Point("delta_product", "model.num_blocks", 1, "README: --n_layers", WORDS, "gated_delta_product transformer"),
    Point("delta_product", "model.num_heads", 8, "README: --n_heads", WORDS, "gated_delta_product transformer"),
    Point("delta_product", "task.group", "S3", "README: --group", WORDS),
    # Merrill et al. 2024, jopetty/word-problem
    Point("merrill", "train.batch", 32, "main.py: batch_size", WORDS),
    Point("merrill", "train.lr", 1e-4, "main.py: lr", WORDS),
    Point("merrill", "train.schedule", "constant", "main.py has no scheduler", WORDS),
    Point("merrill", "train.betas", (0.9, 0.999), "main.py: beta1, beta2", WORDS),
    Point("merrill", "train.eps", 1e-8, "main.py: op_eps", WORDS),
    Point("merrill", "train.weight_decay", 0.01, "main.py: weight_decay", WORDS),
    Point("merrill", "train.clip", 0.0, "main.py: gradient_clip=None", WORDS),
    Point("merrill", "train.stop_above", 0.99, "main.py: max_val_acc", WORDS),
    Point("merrill", "task.supervision", "dense", "main.py: tagging", WORDS),
    Point("merrill", "eval.score", "strings", "main.py: sequence_accuracy decides", WORDS),
    Point("merrill", "model.d_model", 512, "main.py: d_model", WORDS, "transformer mamba"),
    Point("merrill", "model.num_heads", 8, "main.py: n_heads", WORDS, "transformer"),
    # PD-SSM
    Point("pdssm_groups", "train.lengths", (3, 40), "README: train to 40", WORDS),
    Point("pdssm_groups", "eval.lengths", (40, 256), "README: validate 40-256", WORDS),
    Point("pdssm_groups", "train.batch", 256, "the trainer's of table 2", WORDS),
    Point("pdssm_groups", "train.stop_above", 0.9995, "the trainer's of table 2: early_stop_threshold", WORDS),
    Point("pdssm_groups", "task.count", "input", "fl_tasks, of table 2: length symbols", WORDS),
    Point("pdssm_groups", "task.inputs", "generators=2", "table 3: (A5,2)", WORDS),
    Point("pdssm_groups", "model.num_blocks", 1, "table 3: depth 1", WORDS),
    Point("pdssm_groups", "measure", "raw", "table 3"),
    # Lahoti et al. 2026
    Point("mamba3", "version", 2, "the first had a width of 128"),
    Point("mamba3", "measure", "scaled", "paper, table 5b"),
    Point("mamba3", "reports", "best", "paper, table 5b: one number a cell"),
    Point("mamba3", "train.curriculum", (40, 80, 120, 160), "paper: 40 to 160"),
    Point("mamba3", "train.steps", 40_000, "paper: 10,000 a stage"),
    Point("mamba3", "model.d_state", 64, "paper", models="mamba3 mamba2 mamba"),
    Point("mamba3", "model.d_model", 64, "paper: the better of 32 and 64", models="mamba3 mamba2 delta_net"),
    Point("mamba3", "model.num_blocks", 1, "paper", "parity", "mamba3 mamba2"),
    Point("mamba3", "model.num_blocks", 3, "paper", MODULAR, "mamba3 mamba2"),
]

NOT_AS_THERE = {  # protocol -> what its source must own up to
    "deepmind": [
        "not as Haiku's",
        "read one-hot symbols",
        "have no bias",
        "theirs from the last",
        "over rates and seeds",
    ],
    "xlstm_code": ["LayerNorms have a bias", "test strings at the last step"],
    "slice": ["best validation accuracy", "chooses of five", "128 or 512", "start normal", "share a frame with GLU"],
    "grazzi": ["not their public code", "validation chooses the rate", "betas and precision"],
    "grazzi_groups": ["what was not read is ours", "width 128, 1 layer", "whole strings"],
    "delta_product": ["the schedule is a cosine", "of the code it builds on", "may show another"],
    "merrill": ["strings are endless", "n is 20 here", "norm follows its layers"],
    "mamba3": ["the better of 32 and 64", "255..256", "which are not published, are ours"],
    "mlregtest": [
        "the smaller sets",
        "with RMSprop",
        "takes the mean",
        "length 30",
        "chooses the rate",
        "layers of 64 units",
    ],
    "mad": [
        "which is repetition",
        "no answer",
        "answers alone",
        "weight decay",
        "keys of every size",
        "one string of 42",
        "at the marker",
        "were not read",
        "harder settings",
    ],
    "pdssm_groups": ["which others", "every prefix", "the trainer's of their Table 2", "5 seeds", "best validation"],
    "selectiv": [
        "a tenth of 1e-3",
        "1,000 are tried",
        "both trained on",
        "above the majority",
        "endless",
        "are kept",
        "not read is ours",
    ],
    "flare": [
        "task.members=walks",
        "128 epochs",
        "no string is empty",
        "halves the rate",
        "without members",
        "no loss on the language",
    ],
}
FIRST_VERSIONS = {"mlregtest", "flare"}


@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point.protocol}-{point.setting}")
def test_a_preset_is_like_its_paper(point: Point) -> None:
    if "." not in point.setting:
        assert getattr(PROTOCOLS[point.protocol], point.setting) == point.value
        return
    for task in point.tasks.split():
        for model in point.models.split():
            run = preset_run(task, model, protocol=point.protocol)
            assert attrgetter(point.setting)(run) == point.value, f"{task} {model}: {point.source}"


@pytest.mark.parametrize("protocol", NOT_AS_THERE)
def test_what_is_not_as_there_is_said(protocol: str) -> None:
    source = PROTOCOLS[protocol].source
    assert "  " not in source and "\n" not in source
    _, _, owned = source.partition("Not as there: ")
    missing = [words for words in NOT_AS_THERE[protocol] if words not in (source if protocol == "grazzi" else owned)]
    assert missing == []


def test_those_of_the_second_version_are_these() -> None:
    words = {name for name, protocol in PROTOCOLS.items() if protocol.table == (WORDS,)}
    later = {name for name, protocol in PROTOCOLS.items() if protocol.version != 1}
    assert later == set(NOT_AS_THERE) - (words - {"pdssm_groups"}) - FIRST_VERSIONS
    assert {point.protocol for point in POINTS} == set(NOT_AS_THERE) | words
    assert words <= set(NOT_AS_THERE)


def test_the_mlstm_of_grazzi_has_half_the_batch() -> None:
    for task in ("parity", *MODULAR.split()):
        run = preset_run(task, "xlstm", protocol="grazzi")
        assert with_model(run, {"ratio": "1:0"}).train.batch == 512
        assert with_model(run, {"ratio": "0:1"}).train.batch == 1024


def test_every_string_of_deepmind_is_scored_as_often() -> None:
    """512 times; where only odd lengths exist, each stands for the even one above it too, as in their code."""
    for task in PROTOCOLS["deepmind"].table:
        run = preset_run(task, "lstm", protocol="deepmind")
        lengths = run.task.legal_lengths(*run.eval.lengths)
        assert len(lengths) == (230 if task == "mod_arithmetic" else 460)
        assert run.eval.test % len(lengths) == 0
        trained = run.task.legal_lengths(*run.train.lengths)
        assert trained == tuple(range(1, 41, 2 if task == "mod_arithmetic" else 1))


def test_modular_arithmetic_of_the_xlstm_code_has_the_lengths_it_draws() -> None:
    """2 n - 1 for n in 20..128, equals sign and answer included."""
    run = preset_run("mod_arithmetic", "xlstm", protocol="xlstm_code")
    assert run.task.legal_lengths(*run.eval.lengths) == tuple(2 * n - 1 for n in range(20, 129))
    assert run.task.legal_lengths(*run.train.lengths) == tuple(2 * n - 1 for n in range(2, 21))


def test_small_ends_are_of_every_model_of_the_xlstm_code() -> None:
    for name in all_models():
        model = preset_run("parity", name, protocol="xlstm_code").model.build(4096)
        assert isinstance(model, Backbone)
        for weight in (model.embedding.weight, model.head.weight):
            assert abs(weight.std().item() / (2 / (5 * 64)) ** 0.5 - 1) < 0.02
