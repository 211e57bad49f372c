/* In place of the generated table: one kernel (fake_plan.c). */
enum tempi_kernel_id { TEMPI_KERNEL_FAKE, TEMPI_KERNEL_COUNT };
