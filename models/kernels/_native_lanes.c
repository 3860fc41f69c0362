// What Python asks for where it makes room for rows of whole vectors.

#include "_native.h"

const int64_t vector_lanes = LANES;
