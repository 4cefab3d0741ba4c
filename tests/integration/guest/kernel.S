/* SPDX-License-Identifier: MIT */
/* A guest of a few bytes for tests of the driver: says what it is on the serial line, then does what
 * "mode=X" on its command line says:
 *   i  idle for ever          s  power off          r  reset
 *   p  panic like Linux does: a message, then a reset
 *   d  wait some 100 million cycles, then as p
 *   c  say the letters from a on, each after a while, the next one kept in memory
 * Entered by QEMU in 32-bit protected mode (PVH), ebx -> hvm_start_info. */
    .section .note.pvh, "a", @note
    .align 4
    .long 4, 4, 18          /* name size, descriptor size, XEN_ELFNOTE_PHYS32_ENTRY */
    .asciz "Xen"
    .long _start

#define COM1      0x3f8
#define GED_REGS  0xfea00200 /* microvm's sleep and reset registers */

    .text
    .code32
    .globl _start
_start:
    cli
    mov $stack_top, %esp
    mov $hello, %esi
    call say
    mov 24(%ebx), %esi      /* cmdline_paddr */
1:  mov (%esi), %eax        /* find "mode" */
    test %al, %al
    jz idle
    cmp $0x65646f6d, %eax
    je 2f
    inc %esi
    jmp 1b
2:  mov 5(%esi), %al
    cmp $'s', %al
    je off
    cmp $'r', %al
    je reset
    cmp $'p', %al
    je panic
    cmp $'d', %al
    je delayed
    cmp $'c', %al
    je count
idle:
    hlt
    jmp idle

count:
    mov $letter, %esi
    call say
    incb letter
    mov $10000000, %ecx
1:  dec %ecx
    jnz 1b
    cmpb $'z', letter
    jbe count
    jmp idle

delayed:
    mov $100000000, %ecx
1:  dec %ecx
    jnz 1b
panic:
    mov $panic_text, %esi
    call say
reset:
    movb $0x42, GED_REGS + 2
    hlt
off:
    movb $0x34, GED_REGS    /* sleep type 5, enable */
    hlt

say:                        /* text at esi */
    mov $COM1, %dx
1:  lodsb
    test %al, %al
    jz 2f
    out %al, %dx
    jmp 1b
2:  ret

hello:
    .asciz "test guest\r\n"
panic_text:
    .asciz "[    1.000000] Kernel panic - not syncing: for a test\r\n[    1.0] more\r\n"
    .data
letter:
    .asciz "a"
    .bss
    .skip 4096
stack_top:
