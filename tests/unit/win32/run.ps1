# Runs every unit test program (test_*.exe) in a folder, on Windows. A program that does not end in time is ended and
# counts as failed. The exit status is the number of failures.
param([Parameter(Mandatory)][string]$Folder, [int]$Seconds = 240)

$failed = 0
$programs = @(Get-ChildItem -Path $Folder -Filter 'test_*.exe')
if ($programs.Count -eq 0) { throw "no test_*.exe in $Folder" }
foreach ($program in $programs) {
    $log = Join-Path $Folder "$($program.BaseName).log"
    $process = Start-Process $program.FullName -WorkingDirectory $Folder -PassThru -NoNewWindow `
        -RedirectStandardOutput $log -RedirectStandardError "$log.err"
    $null = $process.Handle # keeps the exit code readable
    if (-not $process.WaitForExit(1000 * $Seconds)) {
        Stop-Process -Id $process.Id
        Write-Output "FAILED  $($program.BaseName): not finished within $Seconds s"
    } elseif ($process.ExitCode -ne 0) {
        Write-Output "FAILED  $($program.BaseName): status $($process.ExitCode)"
    } else {
        Write-Output "ok      $($program.BaseName)"
        continue
    }
    $failed++
    Get-Content $log, "$log.err"
}
exit $failed
