#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern void nc_count(const char *);
extern void nc_node(void *, const char *);
struct D {
    int dt, nd, dim[8], st[8];
    int mode, bias, in, hid, proj, layers, mathtype, prec;
};
static void *cur;
#define NEW(n)                                                                                                         \
    int n(void **d) {                                                                                                  \
        *d = calloc(1, sizeof(struct D));                                                                              \
        return 0;                                                                                                      \
    }
#define ZERO(n)                                                                                                        \
    int n() { return 0; }
#define CALL(n)                                                                                                        \
    int n() {                                                                                                          \
        nc_node(cur, #n);                                                                                              \
        return 0;                                                                                                      \
    }
int cudnnCreate(void **h) {
    static char c[64];
    *h = c;
    return 0;
}
int cudnnSetStream(void *h, void *s) {
    cur = s;
    return 0;
}
int cudnnGetStream(void *h, void **s) {
    *s = cur;
    return 0;
}
size_t cudnnGetVersion() { return 91900; }
size_t cudnnGetCudartVersion() { return 13000; }
const char *cudnnGetErrorString(int e) { return "null cudnn"; }
void cudnnGetLastErrorString(char *m, size_t n) {
    if (n)
        *m = 0;
}
NEW(cudnnCreateActivationDescriptor)
NEW(cudnnCreateCTCLossDescriptor) NEW(cudnnCreateConvolutionDescriptor) NEW(cudnnCreateDropoutDescriptor)
    NEW(cudnnCreateFilterDescriptor) NEW(cudnnCreatePoolingDescriptor) NEW(cudnnCreateRNNDataDescriptor)
        NEW(cudnnCreateRNNDescriptor) NEW(cudnnCreateSpatialTransformerDescriptor) NEW(cudnnCreateTensorDescriptor)
            ZERO(cudnnDestroyActivationDescriptor) ZERO(cudnnDestroyCTCLossDescriptor)
                ZERO(cudnnDestroyConvolutionDescriptor) ZERO(cudnnDestroyDropoutDescriptor)
                    ZERO(cudnnDestroyFilterDescriptor) ZERO(cudnnDestroyRNNDataDescriptor)
                        ZERO(cudnnDestroyRNNDescriptor) ZERO(cudnnDestroySpatialTransformerDescriptor)
                            ZERO(cudnnDestroyTensorDescriptor) int cudnnDropoutGetStatesSize(void *h, size_t *n) {
    *n = 1 << 21;
    return 0;
}
ZERO(cudnnSetDropoutDescriptor)
ZERO(cudnnRestoreDropoutDescriptor) int cudnnSetTensorNdDescriptor(struct D *d, int dt, int nd, const int *dim,
                                                                   const int *st) {
    d->dt = dt;
    d->nd = nd;
    memcpy(d->dim, dim, nd * 4);
    memcpy(d->st, st, nd * 4);
    return 0;
}
int cudnnGetTensorNdDescriptor(struct D *d, int req, int *dt, int *nd, int *dim, int *st) {
    *dt = d->dt;
    *nd = d->nd;
    for (int i = 0; i < d->nd && i < req; i++) {
        dim[i] = d->dim[i];
        st[i] = d->st[i];
    }
    return 0;
}
ZERO(cudnnSetFilterNdDescriptor)
ZERO(cudnnGetFilterNdDescriptor)
    ZERO(cudnnSetRNNDataDescriptor) int cudnnSetRNNDescriptor_v8(struct D *d, int algo, int cell, int bias, int dir,
                                                                 int inmode, int dt, int prec, int mathtype, int in,
                                                                 int hid, int proj, int layers, void *drop,
                                                                 unsigned aux) {
    d->dt = dt;
    d->mode = cell;
    d->bias = bias;
    d->in = in;
    d->hid = hid;
    d->proj = proj;
    d->layers = layers;
    d->mathtype = mathtype;
    d->prec = prec;
    char b[128];
    snprintf(b, 128, "#cudnnRNN desc dtype=%d mathPrec=%d mathType=%d algo=%d", dt, prec, mathtype, algo);
    nc_count(b);
    return 0;
}
static int es(int dt) { return dt == 1 ? 8 : (dt == 2 || dt == 9) ? 2 : 4; }
static int gates(int mode) { return mode == 2 ? 4 : mode == 3 ? 3 : 1; }
static size_t params(struct D *d) {
    return (size_t)gates(d->mode) * ((size_t)d->hid * d->in + (size_t)d->hid * d->hid + 2 * (size_t)d->hid);
}
int cudnnGetRNNWeightSpaceSize(void *h, struct D *d, size_t *n) {
    *n = params(d) * es(d->dt);
    return 0;
}
int cudnnGetRNNTempSpaceSizes(void *h, struct D *d, int mode, void *x, size_t *ws, size_t *rs) {
    *ws = 1 << 22;
    if (rs)
        *rs = 1 << 22;
    return 0;
}
int cudnnGetRNNWeightParams(void *h, struct D *d, int layer, size_t size, char *space, int lin, struct D *md, void **ma,
                            struct D *bd, void **ba) {
    int g = gates(d->mode);
    int rec = lin >= g;
    int k = rec ? lin - g : lin;
    int cols = rec ? d->hid : d->in;
    size_t off = rec ? (size_t)g * d->hid * d->in + (size_t)k * d->hid * d->hid : (size_t)k * d->hid * d->in;
    size_t boff = (size_t)g * d->hid * (d->in + d->hid) + (size_t)lin * d->hid;
    if (lin >= 2 * g) {
        if (ma)
            *ma = 0;
        if (ba)
            *ba = 0;
        if (md)
            md->nd = 0;
        if (bd)
            bd->nd = 0;
        return 0;
    }
    if (ma)
        *ma = space + off * es(d->dt);
    if (md) {
        md->dt = d->dt;
        md->nd = 3;
        md->dim[0] = 1;
        md->dim[1] = d->hid;
        md->dim[2] = cols;
        md->st[0] = d->hid * cols;
        md->st[1] = cols;
        md->st[2] = 1;
    }
    if (ba)
        *ba = space + boff * es(d->dt);
    if (bd) {
        bd->dt = d->dt;
        bd->nd = 3;
        bd->dim[0] = 1;
        bd->dim[1] = d->hid;
        bd->dim[2] = 1;
        bd->st[0] = d->hid;
        bd->st[1] = 1;
        bd->st[2] = 1;
    }
    return 0;
}
CALL(cudnnRNNForward)
CALL(cudnnRNNBackwardData_v8) CALL(cudnnRNNBackwardWeights_v8) CALL(cudnnConvolutionForward)
    CALL(cudnnConvolutionBackwardData) CALL(cudnnConvolutionBackwardFilter) CALL(cudnnBackendExecute)
