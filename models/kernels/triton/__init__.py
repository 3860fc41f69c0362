from chomsky_ladder.models.kernels.triton.assembler import choose_assembler

choose_assembler()
