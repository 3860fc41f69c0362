"""The paper behind each preset, and every point in which the preset deviates, for `ladder list --json` and the page.

A preset (harness/config/presets.py) follows its paper, or its source says where it does not. Tests compare the settings
with the papers and their public code (tests/harness/config/test_presets_sources.py).
"""

_TEXTS = {
    "xlstm": """
        Beck et al. 2024 (2405.04517), B.1.1; width 128, 4 heads, clipping at 1.0 and 3 seeds (paper: 2) ours
    """,
    "xlstm_20k": "the xlstm protocol cut to 20,000 steps",
    "xlstm_code": """
        the configuration in the xLSTM authors' public code (NX-AI/xlstm, experiments/parity_xlstm11.yaml), whose
        models are xlstm at the ratios 0:1, 1:0 and 1:1 and whose tasks are four: raw accuracy, one seed, an sLSTM
        with a convolution of 4 and recurrent weights from 0, embedding and head from N(0, 2/(5 D)), modular
        arithmetic scored from length 39 (which is in the accuracy and in no bin). Not as there: LayerNorms have a
        bias; the score is of test strings at the last step, where they print that of 8,192 validation strings every
        200 steps. Every other model at this size is ours
    """,
    "grazzi": """
        Grazzi et al. 2024 (2411.12537): what their paper says, not their public code, which has 20,000 steps for
        parity and no decay for Mamba and DeltaNet there. The best of 3 seeds is reported; clipping at 1.0 for
        Transformer, Mamba and DeltaNet on modular arithmetic alone, width 64 with 1 head for xLSTM there alone, a
        batch of 512 for the mLSTM (xlstm with a ratio of 1:0). Not as there: validation chooses the rate, where they
        take the best median; betas and precision, which are not published, are ours; models they do not have are
        trained like the others, without clipping
    """,
    "deepmind": """
        Deletang et al. 2022 (2207.02098) and their public code: Adam, one length a batch, strings of every length
        from 1, a loss over all answer slots with zeros behind the terminator, which accuracy leaves out, 512 test
        strings a length, the mean over lengths, solved from .90, the best of 10 seeds reported; '*' in brackets and
        not in equations; ReLU in their RNNs and between h and the head, 1 added to the LSTM's forget gate, a tape of
        40 cells that jumps by the input's length, and the encoder of Vaswani et al. Not as there: weights start as
        torch's do, not as Haiku's, and the encoder's embedding from a deviation of 1, not 0.16; RNNs have an
        embedding, where theirs read one-hot symbols; logits range over all symbols and have no bias; sinusoids count
        from the first symbol, theirs from the last; the embedding is not dropped; the unknown of an equation takes
        the place of any digit with equal chance, and its value is drawn anew; a stack has 512 cells, where the 30 of
        their code's default could not hold the longest strings; validation chooses the rate, where they take the best
        over rates and seeds. A GRU, and a causal transformer of their encoder's size alone, which they have not, are
        ours
    """,
    "slice": """
        Walker et al. 2025 (2505.17761) as in their public code (structured-linear-cdes), which is the protocol of
        PD-SSM's Table 2 too: lengths are of what is read, with the = of modular arithmetic, the last position alone is
        supervised and scored, raw accuracy, mean of 5 seeds, AdamW with a decay of .01 on all but the embedding, no
        clipping, a stop at the first validation above .9995; their own layer without an input B(x), with h_1 = W x_1 +
        b, a norm penalty of .001 and, by the configuration of its block-diagonal form, tanh. Not as there: they report
        a run's best validation accuracy, here it is the test accuracy at its last step; all lengths of modular
        arithmetic are scored as often, theirs the shortest half as often; their configurations have one rate a model,
        2e-3 for their own, here validation chooses of five, which are ours; the width is 128, where they have 128 or
        512; the matrices of their layer start normal, here uniform with the same deviation; their head has a bias;
        other models are this repository's, where theirs share a frame with GLU
    """,
    "mamba3": """
        Lahoti et al. 2026 (2603.15569): longest lengths 40 to 160 in stages of 10,000 steps, 1 layer for parity and 3
        for modular arithmetic, a state of 64, eight log-spaced rates, tested at 256. Not as there: the width is 64,
        where they take the better of 32 and 64; tested at 255..256, since not every task has both; the four stages,
        betas, decay, clipping, warm-up, final rate, 4 heads and 3 seeds, which are not published, are ours. Their
        table has one number a cell and no spread, which is taken for the best
    """,
    "grazzi_groups": """
        Grazzi et al. 2024 (2411.12537), appendix E.2, on word problems: 1.6 million strings of 32 elements in 100
        epochs, tested on 40,000 of 500, AdamW at 1e-4 with a decay of .01, clipping at 1.0, a batch of 512; strings of
        several tokens an element are trained on at 64, for S5 with tokens_per=4 and Z60 with 2, and S5 also with
        inputs=swaps and 3-perm: these are settings to add. Not as there: what was not read is ours, that is betas, a
        constant rate, width 128, 1 layer, 4 heads, 3 seeds and their mean, and that accuracy is of whole strings
    """,
    "delta_product": """
        DeltaProduct (2502.10297) as in its public code's example, on S3, and S4, A5 and S5 as settings to add: 100,000
        strings of 128 elements in 100 epochs of batches of 2,048, tested on 100,000 of 512, rate 1e-3 with a schedule,
        1 layer, 8 heads. Not as there: what was not read is taken elsewhere, so the schedule is a cosine to 1e-5,
        AdamW's decay of .01 and betas are those of the code it builds on (word-problem), width 128, 3 seeds and their
        mean are ours, and accuracy is of whole strings, where a figure may show another
    """,
    "merrill": """
        Merrill, Petty and Sabharwal 2024 (2404.08819), the defaults of their public code (word-problem): AdamW at 1e-4
        with a decay of .01 and no schedule or clipping, a batch of 32, width 512, 8 heads, every prefix supervised,
        strings of all lengths from 2 to n, scored as whole strings at n, a stop at a validation accuracy of .99. Their
        figure is the least depth that solves a length, which takes model.num_blocks and both lengths (ladder study
        depth does so at a small budget). Not as there: strings are endless and may repeat, since the sizes of their
        sets, of which they take 500 epochs, were not read, and 100,000 steps are ours, as are 3 seeds; n is 20 here;
        their transformer's norm follows its layers, and embeddings, biases and gains are decayed
    """,
    "pdssm_groups": """
        the word problems (G, n) of PD-SSM (2509.22284), Table 3: A5 and S5 from n symbols, two that generate the group
        and random others, none twice (inputs=generators=n; theirs are called transitions that preserve the group),
        trained at lengths to 40 and scored at 40..256, as the README of their public code says, raw accuracy, depth 1
        and 2. Their code has the trainer but neither these groups nor a configuration of them. Not as there: which two
        generate the group and which others are drawn was not read, and may differ; that every prefix is supervised, and
        the last one scored, is ours; steps, batch, AdamW, decay, warm-up, final rate and the stop above .9995 are the
        trainer's of their Table 2, whose rate is 2e-3, here one of five that validation chooses; 5 seeds and their
        mean, where theirs is the best of 3; the width of 128. Its PD-SSM has 32 matrices for S5 (model.num_maps=32) and
        its Gated DeltaProduct 4 Householder steps. They report a best validation, here it is the test at the last step
    """,
    "mlregtest": """
        van der Poel et al. 2024 (2304.07687) and their public code: lengths 20..29 in training; the test's short
        strings are the bin to 29, its long ones the bin from there to 50, and task.test=adversarial makes both
        adversarial (the training is the same, so the trained model is, too); 100,000 strings (of the smaller sets
        10,000 or 1,000, by train.examples) seen in 64 epochs of batches of 64, one run, raw accuracy, dropout .1 but
        for the LSTM, width 32 for simple RNN and GRU and 256 for the others, 2 blocks with 2 heads and learnt
        positions in the transformer, Adam at 1e-4 or, for the GRU, 1e-2. Not as there: the smaller sets, which have
        fewer steps there, have as many here unless train.steps says otherwise; validation, of the test's lengths,
        chooses the rate of the two; GRU and LSTM are trained with Adam, theirs with RMSprop; no layers of 64 units
        stand between the state and the answer, which has two outputs there; their transformer sees the whole string,
        takes the mean over it and has no feed-forward in its blocks; length 30 is among the long strings, each length
        has 5,000, and no string is kept from being in two sets; other models are ours
    """,
    "flare": """
        Butoi et al. 2024 (2411.07107) and their public code, recognition alone (R): 10,000 strings of lengths to 40 in
        training, 10 test strings of each length to 500, raw accuracy, the mean of 10 runs, some 64,000 parameters in 5
        layers, 8 heads, sinusoidal positions and dropout .1, Adam, clipping at 5. Not as there: members of a regular
        language are uniform, theirs walks, which task.members=walks are (parity, even-pairs and dyck-2-3 differ); no
        string is empty; 20,000 steps of 64 strings, which are 128 epochs, where the batch is drawn per run, epochs are
        1,000 at most, and validation halves the rate and stops; the rate is one of five that validation chooses, theirs
        drawn per run between the same ends; validation has the test's lengths, theirs those to 40 or to 80; lengths
        without members have no strings, and the others share theirs; RNN and LSTM learn no initial state, the
        transformer reads no symbol before the first; weights start otherwise; no loss on the language and on next
        symbols; other models are ours
    """,
    "mad": """
        Poli et al. 2024 (2403.17844) and their public code, the settings that its tasks begin from: 12,800 strings (of
        memorization 256) seen in 200 epochs of batches of 128, AdamW from one of three rates down a cosine to 1e-6,
        width 128, two blocks, raw accuracy on 1,280 strings. Lengths say how many tokens theirs have; of fuzzy recall
        and selective copying one more, for the last answer counts here; of compression one less, for its marker does
        not. Compression is theirs with the model autoencoder alone, whose member is any other. Not as there:
        compression with other models, which is repetition; its marker is no answer; the harder settings, over which
        their scores are means, are for task.* and train.* to set; recall is trained on its answers alone, theirs on
        every next token; weight decay, there the better of 0 and .1, is 0; fuzzy recall is tested with keys of every
        size, theirs with the longest, and asks for a key that has been shown, theirs in one string of 42 has not;
        selective copying reads its first answer at the marker, theirs behind it, so a blank more stands before; their
        blocks' norms and starting weights, and clipping, were not read; validation chooses the rate; other models are
        ours
    """,
    "selectiv": """
        SelectivBench, Bouhadjar et al. 2026 (2601.12598), its first task, from a description of the paper and its
        public code: 200,000 strings of 200 elements, a blank behind each, in one pass of batches of 64, Adam at one of
        three rates down a cosine to a tenth, clipping at 1.0, 8 layers, 4 heads, a state of 128, dropout of .2, 4
        seeds, 40 symbols of 40 states each, of which one in a hundred may end a word. Gaps and distractors are settings
        to add (task.steps=[2,11] with noise=20 at longer strings; steps=[1,1] distractors=10 quiet=51 at strings of
        200), and so are fewer ambiguous symbols (20 to 38, of as many states and with more ends: .4 by that number) and
        other widths (256 to 1,296). Not as there: the last rate is a tenth of 1e-3 for all three, and their code's
        default schedule ends at 0; the warm-up has 476 steps, where 1,000 are tried, too, and the better on the test
        counts, as of the rates, here validation chooses; accuracy is plain, theirs of the sum over an element and its
        blank, which are both trained on (and in the paper above the majority's); strings are endless, a pass without
        its set, whose first thousand are their test; words of more than 200 are kept. What was not read is ours:
        validation and test sets; other models are ours
    """,
    "xlstm_cpu": """
        the xlstm lengths, tasks and selection at what two CPU cores carry in an evening: 1,000 steps of 32 strings,
        half the width, two rates, 1,024 test strings, a stop when validation stays perfect; a forget bias of 1 for
        the LSTMs
    """,
    "quick": "a smoke run of minutes on a CPU, not a result: the xlstm lengths and scores at a tiny budget",
}
SOURCES = {name: " ".join(text.split()) for name, text in _TEXTS.items()}
