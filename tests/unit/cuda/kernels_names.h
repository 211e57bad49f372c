/* In place of the generated table: one kernel (fake_plan.c). */
enum { TEMPI_KERNEL_BLOCK = 32 };
enum tempi_kernel_id { TEMPI_KERNEL_FAKE, TEMPI_KERNEL_COUNT };
