/* copy_work.h: what a copy function asks for. */
#ifndef TEMPI_EMULATOR_COPY_H
#define TEMPI_EMULATOR_COPY_H

#include "emulator/core/emulator.h"

typedef enum { EMU_ANY, EMU_MUST_HOST, EMU_MUST_DEVICE } tempi_emu_must;

typedef struct {
    uint64_t dst;
    uint64_t src;
    tempi_emu_must dst_must;
    tempi_emu_must src_must;
    tempi_emu_box box; /* its pointers and its staging are made by tempi_emu_copy */
    CUstream stream;
    bool wait; /* a synchronous function */
} tempi_emu_transfer;

CUresult tempi_emu_copy(tempi_emu_context *context, const tempi_emu_transfer *transfer);
CUresult tempi_emu_fill(tempi_emu_context *context, CUdeviceptr pointer, uint8_t value,
                        size_t count, CUstream handle);

#endif
