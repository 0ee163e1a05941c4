// Files as bytes in the program: NAME ... NAME_end. Their paths come from cmake/echarts.cmake.
.macro asset name, path
  .global \name
  .global \name\()_end
\name:
  .incbin "\path"
\name\()_end:
  .byte 0
.endm

  .section .rodata
  asset strata_page_html, STRATA_PAGE_HTML
  asset strata_page_js, STRATA_PAGE_JS
  asset strata_page_css, STRATA_PAGE_CSS
  asset strata_echarts_js, STRATA_ECHARTS_JS

#if defined(__linux__) && defined(__ELF__)
  .section .note.GNU-stack, "", %progbits
#endif
