#include <stddef.h>
#include <string.h>
extern void nc_count(const char *);
extern void nc_node(void *, const char *);
extern int nc_capturing(void);
static void *cur;
static int mode = 0;
static char dummy[4096];
int cublasCreate_v2(void **h) {
    *h = dummy;
    return 0;
}
int cublasSetStream_v2(void *h, void *s) {
    cur = s;
    return 0;
}
int cublasGetMathMode(void *h, int *m) {
    *m = mode;
    return 0;
}
int cublasSetMathMode(void *h, int m) {
    mode = m;
    return 0;
}
int cublasGetPointerMode_v2(void *h, int *m) {
    *m = 0;
    return 0;
}
int cublasCaxpy_v2() {
    nc_node(cur, mode == 3 ? "cublasCaxpy_v2 TF32" : "cublasCaxpy_v2");
    return 0;
}
int cublasCcopy_v2() {
    nc_node(cur, mode == 3 ? "cublasCcopy_v2 TF32" : "cublasCcopy_v2");
    return 0;
}
int cublasCdotc_v2() {
    nc_node(cur, mode == 3 ? "cublasCdotc_v2 TF32" : "cublasCdotc_v2");
    return 0;
}
int cublasCdotu_v2() {
    nc_node(cur, mode == 3 ? "cublasCdotu_v2 TF32" : "cublasCdotu_v2");
    return 0;
}
int cublasCgelsBatched() {
    nc_node(cur, mode == 3 ? "cublasCgelsBatched TF32" : "cublasCgelsBatched");
    return 0;
}
int cublasCgemmBatched() {
    nc_node(cur, mode == 3 ? "cublasCgemmBatched TF32" : "cublasCgemmBatched");
    return 0;
}
int cublasCgemmStridedBatched() {
    nc_node(cur, mode == 3 ? "cublasCgemmStridedBatched TF32" : "cublasCgemmStridedBatched");
    return 0;
}
int cublasCgemm_v2() {
    nc_node(cur, mode == 3 ? "cublasCgemm_v2 TF32" : "cublasCgemm_v2");
    return 0;
}
int cublasCgemv_v2() {
    nc_node(cur, mode == 3 ? "cublasCgemv_v2 TF32" : "cublasCgemv_v2");
    return 0;
}
int cublasCgeqrfBatched() {
    nc_node(cur, mode == 3 ? "cublasCgeqrfBatched TF32" : "cublasCgeqrfBatched");
    return 0;
}
int cublasCgerc_v2() {
    nc_node(cur, mode == 3 ? "cublasCgerc_v2 TF32" : "cublasCgerc_v2");
    return 0;
}
int cublasCgeru_v2() {
    nc_node(cur, mode == 3 ? "cublasCgeru_v2 TF32" : "cublasCgeru_v2");
    return 0;
}
int cublasCgetrfBatched() {
    nc_node(cur, mode == 3 ? "cublasCgetrfBatched TF32" : "cublasCgetrfBatched");
    return 0;
}
int cublasCgetrsBatched() {
    nc_node(cur, mode == 3 ? "cublasCgetrsBatched TF32" : "cublasCgetrsBatched");
    return 0;
}
int cublasChemm_v2() {
    nc_node(cur, mode == 3 ? "cublasChemm_v2 TF32" : "cublasChemm_v2");
    return 0;
}
int cublasChemv_v2() {
    nc_node(cur, mode == 3 ? "cublasChemv_v2 TF32" : "cublasChemv_v2");
    return 0;
}
int cublasCher2_v2() {
    nc_node(cur, mode == 3 ? "cublasCher2_v2 TF32" : "cublasCher2_v2");
    return 0;
}
int cublasCher2k_v2() {
    nc_node(cur, mode == 3 ? "cublasCher2k_v2 TF32" : "cublasCher2k_v2");
    return 0;
}
int cublasCher_v2() {
    nc_node(cur, mode == 3 ? "cublasCher_v2 TF32" : "cublasCher_v2");
    return 0;
}
int cublasCherk_v2() {
    nc_node(cur, mode == 3 ? "cublasCherk_v2 TF32" : "cublasCherk_v2");
    return 0;
}
int cublasCrot_v2() {
    nc_node(cur, mode == 3 ? "cublasCrot_v2 TF32" : "cublasCrot_v2");
    return 0;
}
int cublasCrotg_v2() {
    nc_node(cur, mode == 3 ? "cublasCrotg_v2 TF32" : "cublasCrotg_v2");
    return 0;
}
int cublasCscal_v2() {
    nc_node(cur, mode == 3 ? "cublasCscal_v2 TF32" : "cublasCscal_v2");
    return 0;
}
int cublasCsrot_v2() {
    nc_node(cur, mode == 3 ? "cublasCsrot_v2 TF32" : "cublasCsrot_v2");
    return 0;
}
int cublasCsscal_v2() {
    nc_node(cur, mode == 3 ? "cublasCsscal_v2 TF32" : "cublasCsscal_v2");
    return 0;
}
int cublasCswap_v2() {
    nc_node(cur, mode == 3 ? "cublasCswap_v2 TF32" : "cublasCswap_v2");
    return 0;
}
int cublasCsymm_v2() {
    nc_node(cur, mode == 3 ? "cublasCsymm_v2 TF32" : "cublasCsymm_v2");
    return 0;
}
int cublasCsymv_v2() {
    nc_node(cur, mode == 3 ? "cublasCsymv_v2 TF32" : "cublasCsymv_v2");
    return 0;
}
int cublasCsyr2_v2() {
    nc_node(cur, mode == 3 ? "cublasCsyr2_v2 TF32" : "cublasCsyr2_v2");
    return 0;
}
int cublasCsyr2k_v2() {
    nc_node(cur, mode == 3 ? "cublasCsyr2k_v2 TF32" : "cublasCsyr2k_v2");
    return 0;
}
int cublasCsyr_v2() {
    nc_node(cur, mode == 3 ? "cublasCsyr_v2 TF32" : "cublasCsyr_v2");
    return 0;
}
int cublasCsyrk_v2() {
    nc_node(cur, mode == 3 ? "cublasCsyrk_v2 TF32" : "cublasCsyrk_v2");
    return 0;
}
int cublasCtrmm_v2() {
    nc_node(cur, mode == 3 ? "cublasCtrmm_v2 TF32" : "cublasCtrmm_v2");
    return 0;
}
int cublasCtrmv_v2() {
    nc_node(cur, mode == 3 ? "cublasCtrmv_v2 TF32" : "cublasCtrmv_v2");
    return 0;
}
int cublasCtrsmBatched() {
    nc_node(cur, mode == 3 ? "cublasCtrsmBatched TF32" : "cublasCtrsmBatched");
    return 0;
}
int cublasCtrsm_v2() {
    nc_node(cur, mode == 3 ? "cublasCtrsm_v2 TF32" : "cublasCtrsm_v2");
    return 0;
}
int cublasCtrsv_v2() {
    nc_node(cur, mode == 3 ? "cublasCtrsv_v2 TF32" : "cublasCtrsv_v2");
    return 0;
}
int cublasDasum_v2() {
    nc_node(cur, mode == 3 ? "cublasDasum_v2 TF32" : "cublasDasum_v2");
    return 0;
}
int cublasDaxpy_v2() {
    nc_node(cur, mode == 3 ? "cublasDaxpy_v2 TF32" : "cublasDaxpy_v2");
    return 0;
}
int cublasDcopy_v2() {
    nc_node(cur, mode == 3 ? "cublasDcopy_v2 TF32" : "cublasDcopy_v2");
    return 0;
}
int cublasDdot_v2() {
    nc_node(cur, mode == 3 ? "cublasDdot_v2 TF32" : "cublasDdot_v2");
    return 0;
}
int cublasDestroy_v2() { return 0; }
int cublasDgelsBatched() {
    nc_node(cur, mode == 3 ? "cublasDgelsBatched TF32" : "cublasDgelsBatched");
    return 0;
}
int cublasDgemmBatched() {
    nc_node(cur, mode == 3 ? "cublasDgemmBatched TF32" : "cublasDgemmBatched");
    return 0;
}
int cublasDgemmStridedBatched() {
    nc_node(cur, mode == 3 ? "cublasDgemmStridedBatched TF32" : "cublasDgemmStridedBatched");
    return 0;
}
int cublasDgemm_v2() {
    nc_node(cur, mode == 3 ? "cublasDgemm_v2 TF32" : "cublasDgemm_v2");
    return 0;
}
int cublasDgemv_v2() {
    nc_node(cur, mode == 3 ? "cublasDgemv_v2 TF32" : "cublasDgemv_v2");
    return 0;
}
int cublasDgeqrfBatched() {
    nc_node(cur, mode == 3 ? "cublasDgeqrfBatched TF32" : "cublasDgeqrfBatched");
    return 0;
}
int cublasDger_v2() {
    nc_node(cur, mode == 3 ? "cublasDger_v2 TF32" : "cublasDger_v2");
    return 0;
}
int cublasDgetrfBatched() {
    nc_node(cur, mode == 3 ? "cublasDgetrfBatched TF32" : "cublasDgetrfBatched");
    return 0;
}
int cublasDgetrsBatched() {
    nc_node(cur, mode == 3 ? "cublasDgetrsBatched TF32" : "cublasDgetrsBatched");
    return 0;
}
int cublasDnrm2_v2() {
    nc_node(cur, mode == 3 ? "cublasDnrm2_v2 TF32" : "cublasDnrm2_v2");
    return 0;
}
int cublasDotEx() {
    nc_node(cur, mode == 3 ? "cublasDotEx TF32" : "cublasDotEx");
    return 0;
}
int cublasDrot_v2() {
    nc_node(cur, mode == 3 ? "cublasDrot_v2 TF32" : "cublasDrot_v2");
    return 0;
}
int cublasDrotg_v2() {
    nc_node(cur, mode == 3 ? "cublasDrotg_v2 TF32" : "cublasDrotg_v2");
    return 0;
}
int cublasDrotm_v2() {
    nc_node(cur, mode == 3 ? "cublasDrotm_v2 TF32" : "cublasDrotm_v2");
    return 0;
}
int cublasDrotmg_v2() {
    nc_node(cur, mode == 3 ? "cublasDrotmg_v2 TF32" : "cublasDrotmg_v2");
    return 0;
}
int cublasDscal_v2() {
    nc_node(cur, mode == 3 ? "cublasDscal_v2 TF32" : "cublasDscal_v2");
    return 0;
}
int cublasDswap_v2() {
    nc_node(cur, mode == 3 ? "cublasDswap_v2 TF32" : "cublasDswap_v2");
    return 0;
}
int cublasDsymm_v2() {
    nc_node(cur, mode == 3 ? "cublasDsymm_v2 TF32" : "cublasDsymm_v2");
    return 0;
}
int cublasDsymv_v2() {
    nc_node(cur, mode == 3 ? "cublasDsymv_v2 TF32" : "cublasDsymv_v2");
    return 0;
}
int cublasDsyr2_v2() {
    nc_node(cur, mode == 3 ? "cublasDsyr2_v2 TF32" : "cublasDsyr2_v2");
    return 0;
}
int cublasDsyr2k_v2() {
    nc_node(cur, mode == 3 ? "cublasDsyr2k_v2 TF32" : "cublasDsyr2k_v2");
    return 0;
}
int cublasDsyr_v2() {
    nc_node(cur, mode == 3 ? "cublasDsyr_v2 TF32" : "cublasDsyr_v2");
    return 0;
}
int cublasDsyrk_v2() {
    nc_node(cur, mode == 3 ? "cublasDsyrk_v2 TF32" : "cublasDsyrk_v2");
    return 0;
}
int cublasDtrmm_v2() {
    nc_node(cur, mode == 3 ? "cublasDtrmm_v2 TF32" : "cublasDtrmm_v2");
    return 0;
}
int cublasDtrmv_v2() {
    nc_node(cur, mode == 3 ? "cublasDtrmv_v2 TF32" : "cublasDtrmv_v2");
    return 0;
}
int cublasDtrsmBatched() {
    nc_node(cur, mode == 3 ? "cublasDtrsmBatched TF32" : "cublasDtrsmBatched");
    return 0;
}
int cublasDtrsm_v2() {
    nc_node(cur, mode == 3 ? "cublasDtrsm_v2 TF32" : "cublasDtrsm_v2");
    return 0;
}
int cublasDtrsv_v2() {
    nc_node(cur, mode == 3 ? "cublasDtrsv_v2 TF32" : "cublasDtrsv_v2");
    return 0;
}
int cublasDzasum_v2() {
    nc_node(cur, mode == 3 ? "cublasDzasum_v2 TF32" : "cublasDzasum_v2");
    return 0;
}
int cublasDznrm2_v2() {
    nc_node(cur, mode == 3 ? "cublasDznrm2_v2 TF32" : "cublasDznrm2_v2");
    return 0;
}
int cublasGemmEx() {
    nc_node(cur, mode == 3 ? "cublasGemmEx TF32" : "cublasGemmEx");
    return 0;
}
int cublasGemmStridedBatchedEx() {
    nc_node(cur, mode == 3 ? "cublasGemmStridedBatchedEx TF32" : "cublasGemmStridedBatchedEx");
    return 0;
}
int cublasGetMatrixAsync() { return 0; }
int cublasGetVectorAsync() { return 0; }
int cublasIcamax_v2() {
    nc_node(cur, mode == 3 ? "cublasIcamax_v2 TF32" : "cublasIcamax_v2");
    return 0;
}
int cublasIcamin_v2() {
    nc_node(cur, mode == 3 ? "cublasIcamin_v2 TF32" : "cublasIcamin_v2");
    return 0;
}
int cublasIdamax_v2() {
    nc_node(cur, mode == 3 ? "cublasIdamax_v2 TF32" : "cublasIdamax_v2");
    return 0;
}
int cublasIdamin_v2() {
    nc_node(cur, mode == 3 ? "cublasIdamin_v2 TF32" : "cublasIdamin_v2");
    return 0;
}
int cublasIsamax_v2() {
    nc_node(cur, mode == 3 ? "cublasIsamax_v2 TF32" : "cublasIsamax_v2");
    return 0;
}
int cublasIsamin_v2() {
    nc_node(cur, mode == 3 ? "cublasIsamin_v2 TF32" : "cublasIsamin_v2");
    return 0;
}
int cublasIzamax_v2() {
    nc_node(cur, mode == 3 ? "cublasIzamax_v2 TF32" : "cublasIzamax_v2");
    return 0;
}
int cublasIzamin_v2() {
    nc_node(cur, mode == 3 ? "cublasIzamin_v2 TF32" : "cublasIzamin_v2");
    return 0;
}
int cublasSasum_v2() {
    nc_node(cur, mode == 3 ? "cublasSasum_v2 TF32" : "cublasSasum_v2");
    return 0;
}
int cublasSaxpy_v2() {
    nc_node(cur, mode == 3 ? "cublasSaxpy_v2 TF32" : "cublasSaxpy_v2");
    return 0;
}
int cublasScasum_v2() {
    nc_node(cur, mode == 3 ? "cublasScasum_v2 TF32" : "cublasScasum_v2");
    return 0;
}
int cublasScnrm2_v2() {
    nc_node(cur, mode == 3 ? "cublasScnrm2_v2 TF32" : "cublasScnrm2_v2");
    return 0;
}
int cublasScopy_v2() {
    nc_node(cur, mode == 3 ? "cublasScopy_v2 TF32" : "cublasScopy_v2");
    return 0;
}
int cublasSdot_v2() {
    nc_node(cur, mode == 3 ? "cublasSdot_v2 TF32" : "cublasSdot_v2");
    return 0;
}
int cublasSetMatrixAsync() { return 0; }
int cublasSetPointerMode_v2() { return 0; }
int cublasSetVectorAsync() { return 0; }
int cublasSetWorkspace_v2() { return 0; }
int cublasSgelsBatched() {
    nc_node(cur, mode == 3 ? "cublasSgelsBatched TF32" : "cublasSgelsBatched");
    return 0;
}
int cublasSgemmBatched() {
    nc_node(cur, mode == 3 ? "cublasSgemmBatched TF32" : "cublasSgemmBatched");
    return 0;
}
int cublasSgemmEx() {
    nc_node(cur, mode == 3 ? "cublasSgemmEx TF32" : "cublasSgemmEx");
    return 0;
}
int cublasSgemmStridedBatched() {
    nc_node(cur, mode == 3 ? "cublasSgemmStridedBatched TF32" : "cublasSgemmStridedBatched");
    return 0;
}
int cublasSgemm_v2() {
    nc_node(cur, mode == 3 ? "cublasSgemm_v2 TF32" : "cublasSgemm_v2");
    return 0;
}
int cublasSgemv_v2() {
    nc_node(cur, mode == 3 ? "cublasSgemv_v2 TF32" : "cublasSgemv_v2");
    return 0;
}
int cublasSgeqrfBatched() {
    nc_node(cur, mode == 3 ? "cublasSgeqrfBatched TF32" : "cublasSgeqrfBatched");
    return 0;
}
int cublasSger_v2() {
    nc_node(cur, mode == 3 ? "cublasSger_v2 TF32" : "cublasSger_v2");
    return 0;
}
int cublasSgetrfBatched() {
    nc_node(cur, mode == 3 ? "cublasSgetrfBatched TF32" : "cublasSgetrfBatched");
    return 0;
}
int cublasSgetrsBatched() {
    nc_node(cur, mode == 3 ? "cublasSgetrsBatched TF32" : "cublasSgetrsBatched");
    return 0;
}
int cublasSnrm2_v2() {
    nc_node(cur, mode == 3 ? "cublasSnrm2_v2 TF32" : "cublasSnrm2_v2");
    return 0;
}
int cublasSrot_v2() {
    nc_node(cur, mode == 3 ? "cublasSrot_v2 TF32" : "cublasSrot_v2");
    return 0;
}
int cublasSrotg_v2() {
    nc_node(cur, mode == 3 ? "cublasSrotg_v2 TF32" : "cublasSrotg_v2");
    return 0;
}
int cublasSrotm_v2() {
    nc_node(cur, mode == 3 ? "cublasSrotm_v2 TF32" : "cublasSrotm_v2");
    return 0;
}
int cublasSrotmg_v2() {
    nc_node(cur, mode == 3 ? "cublasSrotmg_v2 TF32" : "cublasSrotmg_v2");
    return 0;
}
int cublasSscal_v2() {
    nc_node(cur, mode == 3 ? "cublasSscal_v2 TF32" : "cublasSscal_v2");
    return 0;
}
int cublasSswap_v2() {
    nc_node(cur, mode == 3 ? "cublasSswap_v2 TF32" : "cublasSswap_v2");
    return 0;
}
int cublasSsymm_v2() {
    nc_node(cur, mode == 3 ? "cublasSsymm_v2 TF32" : "cublasSsymm_v2");
    return 0;
}
int cublasSsymv_v2() {
    nc_node(cur, mode == 3 ? "cublasSsymv_v2 TF32" : "cublasSsymv_v2");
    return 0;
}
int cublasSsyr2_v2() {
    nc_node(cur, mode == 3 ? "cublasSsyr2_v2 TF32" : "cublasSsyr2_v2");
    return 0;
}
int cublasSsyr2k_v2() {
    nc_node(cur, mode == 3 ? "cublasSsyr2k_v2 TF32" : "cublasSsyr2k_v2");
    return 0;
}
int cublasSsyr_v2() {
    nc_node(cur, mode == 3 ? "cublasSsyr_v2 TF32" : "cublasSsyr_v2");
    return 0;
}
int cublasSsyrk_v2() {
    nc_node(cur, mode == 3 ? "cublasSsyrk_v2 TF32" : "cublasSsyrk_v2");
    return 0;
}
int cublasStrmm_v2() {
    nc_node(cur, mode == 3 ? "cublasStrmm_v2 TF32" : "cublasStrmm_v2");
    return 0;
}
int cublasStrmv_v2() {
    nc_node(cur, mode == 3 ? "cublasStrmv_v2 TF32" : "cublasStrmv_v2");
    return 0;
}
int cublasStrsmBatched() {
    nc_node(cur, mode == 3 ? "cublasStrsmBatched TF32" : "cublasStrsmBatched");
    return 0;
}
int cublasStrsm_v2() {
    nc_node(cur, mode == 3 ? "cublasStrsm_v2 TF32" : "cublasStrsm_v2");
    return 0;
}
int cublasStrsv_v2() {
    nc_node(cur, mode == 3 ? "cublasStrsv_v2 TF32" : "cublasStrsv_v2");
    return 0;
}
int cublasZaxpy_v2() {
    nc_node(cur, mode == 3 ? "cublasZaxpy_v2 TF32" : "cublasZaxpy_v2");
    return 0;
}
int cublasZcopy_v2() {
    nc_node(cur, mode == 3 ? "cublasZcopy_v2 TF32" : "cublasZcopy_v2");
    return 0;
}
int cublasZdotc_v2() {
    nc_node(cur, mode == 3 ? "cublasZdotc_v2 TF32" : "cublasZdotc_v2");
    return 0;
}
int cublasZdotu_v2() {
    nc_node(cur, mode == 3 ? "cublasZdotu_v2 TF32" : "cublasZdotu_v2");
    return 0;
}
int cublasZdrot_v2() {
    nc_node(cur, mode == 3 ? "cublasZdrot_v2 TF32" : "cublasZdrot_v2");
    return 0;
}
int cublasZdscal_v2() {
    nc_node(cur, mode == 3 ? "cublasZdscal_v2 TF32" : "cublasZdscal_v2");
    return 0;
}
int cublasZgelsBatched() {
    nc_node(cur, mode == 3 ? "cublasZgelsBatched TF32" : "cublasZgelsBatched");
    return 0;
}
int cublasZgemmBatched() {
    nc_node(cur, mode == 3 ? "cublasZgemmBatched TF32" : "cublasZgemmBatched");
    return 0;
}
int cublasZgemmStridedBatched() {
    nc_node(cur, mode == 3 ? "cublasZgemmStridedBatched TF32" : "cublasZgemmStridedBatched");
    return 0;
}
int cublasZgemm_v2() {
    nc_node(cur, mode == 3 ? "cublasZgemm_v2 TF32" : "cublasZgemm_v2");
    return 0;
}
int cublasZgemv_v2() {
    nc_node(cur, mode == 3 ? "cublasZgemv_v2 TF32" : "cublasZgemv_v2");
    return 0;
}
int cublasZgeqrfBatched() {
    nc_node(cur, mode == 3 ? "cublasZgeqrfBatched TF32" : "cublasZgeqrfBatched");
    return 0;
}
int cublasZgerc_v2() {
    nc_node(cur, mode == 3 ? "cublasZgerc_v2 TF32" : "cublasZgerc_v2");
    return 0;
}
int cublasZgeru_v2() {
    nc_node(cur, mode == 3 ? "cublasZgeru_v2 TF32" : "cublasZgeru_v2");
    return 0;
}
int cublasZgetrfBatched() {
    nc_node(cur, mode == 3 ? "cublasZgetrfBatched TF32" : "cublasZgetrfBatched");
    return 0;
}
int cublasZgetrsBatched() {
    nc_node(cur, mode == 3 ? "cublasZgetrsBatched TF32" : "cublasZgetrsBatched");
    return 0;
}
int cublasZhemm_v2() {
    nc_node(cur, mode == 3 ? "cublasZhemm_v2 TF32" : "cublasZhemm_v2");
    return 0;
}
int cublasZhemv_v2() {
    nc_node(cur, mode == 3 ? "cublasZhemv_v2 TF32" : "cublasZhemv_v2");
    return 0;
}
int cublasZher2_v2() {
    nc_node(cur, mode == 3 ? "cublasZher2_v2 TF32" : "cublasZher2_v2");
    return 0;
}
int cublasZher2k_v2() {
    nc_node(cur, mode == 3 ? "cublasZher2k_v2 TF32" : "cublasZher2k_v2");
    return 0;
}
int cublasZher_v2() {
    nc_node(cur, mode == 3 ? "cublasZher_v2 TF32" : "cublasZher_v2");
    return 0;
}
int cublasZherk_v2() {
    nc_node(cur, mode == 3 ? "cublasZherk_v2 TF32" : "cublasZherk_v2");
    return 0;
}
int cublasZrot_v2() {
    nc_node(cur, mode == 3 ? "cublasZrot_v2 TF32" : "cublasZrot_v2");
    return 0;
}
int cublasZrotg_v2() {
    nc_node(cur, mode == 3 ? "cublasZrotg_v2 TF32" : "cublasZrotg_v2");
    return 0;
}
int cublasZscal_v2() {
    nc_node(cur, mode == 3 ? "cublasZscal_v2 TF32" : "cublasZscal_v2");
    return 0;
}
int cublasZswap_v2() {
    nc_node(cur, mode == 3 ? "cublasZswap_v2 TF32" : "cublasZswap_v2");
    return 0;
}
int cublasZsymm_v2() {
    nc_node(cur, mode == 3 ? "cublasZsymm_v2 TF32" : "cublasZsymm_v2");
    return 0;
}
int cublasZsymv_v2() {
    nc_node(cur, mode == 3 ? "cublasZsymv_v2 TF32" : "cublasZsymv_v2");
    return 0;
}
int cublasZsyr2_v2() {
    nc_node(cur, mode == 3 ? "cublasZsyr2_v2 TF32" : "cublasZsyr2_v2");
    return 0;
}
int cublasZsyr2k_v2() {
    nc_node(cur, mode == 3 ? "cublasZsyr2k_v2 TF32" : "cublasZsyr2k_v2");
    return 0;
}
int cublasZsyr_v2() {
    nc_node(cur, mode == 3 ? "cublasZsyr_v2 TF32" : "cublasZsyr_v2");
    return 0;
}
int cublasZsyrk_v2() {
    nc_node(cur, mode == 3 ? "cublasZsyrk_v2 TF32" : "cublasZsyrk_v2");
    return 0;
}
int cublasZtrmm_v2() {
    nc_node(cur, mode == 3 ? "cublasZtrmm_v2 TF32" : "cublasZtrmm_v2");
    return 0;
}
int cublasZtrmv_v2() {
    nc_node(cur, mode == 3 ? "cublasZtrmv_v2 TF32" : "cublasZtrmv_v2");
    return 0;
}
int cublasZtrsmBatched() {
    nc_node(cur, mode == 3 ? "cublasZtrsmBatched TF32" : "cublasZtrsmBatched");
    return 0;
}
int cublasZtrsm_v2() {
    nc_node(cur, mode == 3 ? "cublasZtrsm_v2 TF32" : "cublasZtrsm_v2");
    return 0;
}
int cublasZtrsv_v2() {
    nc_node(cur, mode == 3 ? "cublasZtrsv_v2 TF32" : "cublasZtrsv_v2");
    return 0;
}
size_t cublasLtGetVersion() { return 130100; }
int cublasLtMatmul(void *h, void *desc, const void *al, const void *A, void *Ad, const void *B, void *Bd,
                   const void *be, const void *C, void *Cd, void *D, void *Dd, const void *algo, void *ws, size_t n,
                   void *stream) {
    nc_node(stream, "cublasLtMatmul");
    return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void *h, void *a, void *b, void *c, void *d, void *e, void *p, int req, char *res,
                                   int *n) {
    memset(res, 0, 128);
    *n = 1;
    return 0;
}
int cublasLtMatmulDescCreate(void **d) {
    *d = dummy;
    return 0;
}
int cublasLtMatmulDescDestroy() { return 0; }
int cublasLtMatmulDescSetAttribute() { return 0; }
int cublasLtMatmulPreferenceCreate(void **d) {
    *d = dummy;
    return 0;
}
int cublasLtMatmulPreferenceDestroy() { return 0; }
int cublasLtMatmulPreferenceSetAttribute() { return 0; }
int cublasLtMatrixLayoutCreate(void **d) {
    *d = dummy;
    return 0;
}
int cublasLtMatrixLayoutDestroy() { return 0; }
int cublasLtMatrixLayoutSetAttribute() { return 0; }
