"""Links: one broker contract, one module family per wire.

Each call that asks a broker raises `LinkLost` where the connection is gone. The docstrings of this
package name that error only where it has another reason, too.
"""
