function(ingot_cpu_kernels)
endfunction()
